"""`benchmax profile`: several platforms under names, one of them in use."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from benchmax import profiles
from benchmax.cli.output import Json, print_json, safe, stderr, visible
from benchmax.errors import NotFoundError, UsageError
from benchmax.files.atomic import write_text

if TYPE_CHECKING:
    from tomlkit import TOMLDocument

app = typer.Typer(help="Name platforms and choose the one to use.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="The profile's name.")]
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


@app.command("list")
def list_(json: Json = False) -> None:
    """Show the profiles; the one in use has a star."""
    kept, used = profiles.named_profiles(profiles.read_profiles()), profiles.profile_name()
    if json:
        print_json({"active": used or None, "profiles": kept})
        return
    for name, values in sorted(kept.items()):
        address = values.get("platform_url") or values.get("domain") or "no address"
        typer.echo(f"{'*' if name == used else ' '} {visible(name)}  {visible(address)}")
    if not kept:
        stderr.print("None: this machine's own platform is used. Add one: benchmax profile add NAME --url URL")


@app.command()
def current(json: Json = False) -> None:
    """Print the name of the profile in use."""
    used = profiles.profile_name()
    if json:
        print_json({"active": used or None})
    elif used:
        typer.echo(used)
    else:
        stderr.print("None: this machine's own platform is used.")


@app.command()
def add(
    name: Name,
    url: Annotated[str | None, typer.Option("--url", "--platform-url", help="The platform's address.")] = None,
    domain: Annotated[str | None, typer.Option(help="A domain; the addresses are made from it.")] = None,
    llm_url: Annotated[str | None, typer.Option(help="An OpenAI-compatible endpoint.")] = None,
    auth_url: Annotated[str | None, typer.Option(help="Where to sign in.")] = None,
    app_url: Annotated[str | None, typer.Option(help="The console.")] = None,
    json: Json = False,
) -> None:
    """Add a profile, or change one."""
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} is no name for a profile. Use letters, digits, - and _.")
    given = {"platform_url": url, "domain": domain, "llm_url": llm_url, "auth_url": auth_url, "app_url": app_url}
    values = {key: value for key, value in given.items() if value}
    if not values:
        raise UsageError("A profile needs an address. Give --url https://… or --domain.")

    def add_values(document: TOMLDocument) -> None:
        named = document.get("profiles")
        if not isinstance(named, dict):
            document["profiles"] = {name: values}
        elif isinstance(named.get(name), dict):
            named[name].update(values)
        else:
            named[name] = values

    tree = _change(add_values)
    stderr.print(f"Kept in {safe(profiles.config_path())}. Use it with: benchmax profile activate {safe(name)}")
    if json:
        print_json({name: tree["profiles"][name]})


@app.command()
def activate(name: Name, json: Json = False) -> None:
    """Use a profile from now on; `none` goes back to this machine's own platform."""
    tree = profiles.read_profiles()
    if name != "none" and name not in profiles.named_profiles(tree):
        there = ", ".join(sorted(profiles.named_profiles(tree))) or "none"
        raise NotFoundError(f"There is no profile {name!r}; there are: {there}. Add it with: benchmax profile add.")
    tree = _change(lambda document: document.update({"active_profile": "" if name == "none" else name}))
    stderr.print(f"{safe(name)} is used from now on.")
    if json:
        print_json({"active": tree["active_profile"] or None})


def _change(change: Callable[[TOMLDocument], None]) -> dict[str, Any]:
    """Change the file in one step, readable by its owner alone; comments and other settings in it stay."""
    import tomlkit  # only here: it takes a while to import

    path = profiles.config_path()
    profiles.read_profiles()  # refuses a file that is broken
    document = tomlkit.parse(path.read_text("utf-8")) if path.exists() else tomlkit.document()
    change(document)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_text(path, tomlkit.dumps(document), private=True)
    return profiles.read_profiles()
