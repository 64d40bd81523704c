"""`benchmax login`, `logout` and `whoami`."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from benchmax import config
from benchmax.cli.output import Json, print_json, print_result, safe, stderr, visible
from benchmax.cli.platform.connection import refusals
from benchmax.errors import UsageError
from benchmax.platform.sdk import credentials
from benchmax.platform.sdk.auto_start import local_url
from benchmax.platform.sdk.client import TrainerClient

Url = Annotated[
    str | None, typer.Option("--url", help="The platform's address (CASTFORM_PLATFORM_URL, or this machine's own).")
]


def whoami(url: Url = None, json: Json = False) -> None:
    """Show who you are to the platform."""
    with refusals(), TrainerClient(base_url=url) as client:
        found = client.whoami() | {"platform": client.base_url}
    print_result(found, json, f"{found['email']} ({', '.join(found['scopes'])}) on {found['platform']}")


def login(
    url: Url = None,
    key: Annotated[
        bool, typer.Option("--key", help="Paste an API key, or give it on stdin, in place of a code.")
    ] = False,
    browser: Annotated[bool, typer.Option(help="Open the page of the code.")] = True,
    json: Json = False,
) -> None:
    """Sign this machine in: confirm a code in a browser, or paste an API key."""
    with refusals():
        address = credentials.base_url(url)
        own = address == local_url()
        path = _paste(address) if key else config.data_dir() if own else _confirm(address, browser)
        with TrainerClient(base_url=address) as client:
            found = client.whoami()
    stderr.print(f"Signed in to {safe(address)} as {safe(found['email'])}; kept in {safe(path)}.")
    if config.platform_token():
        stderr.print("An API key is set in the environment; it is used in place of this sign-in.")
    if json:
        print_json({"platform": address, "email": found["email"], "credentials": str(path)})


def read_hidden(what: str) -> str:
    """A secret from a prompt, or a line of stdin: never from the command line, which others can see."""
    ask = sys.stdin.isatty()
    return str(typer.prompt(what, hide_input=True, err=True) if ask else sys.stdin.readline()).strip()


def _paste(address: str) -> Any:
    """Keep a key once the platform has taken it."""
    token = read_hidden("API key")
    if not token:
        raise UsageError("No key was given. Paste one, or pipe it: benchmax login --key < key.txt")
    with TrainerClient(token, address) as client:
        client.whoami()
    return credentials.keep_session(address, token)


def _confirm(address: str, browser: bool) -> Any:
    import webbrowser

    def say(text: str) -> None:
        stderr.print(visible(text), markup=False)

    return credentials.login(address, say=say, open_page=webbrowser.open if browser else None)


def logout(json: Json = False) -> None:
    """Forget the sign-in of this machine. API keys in the environment stay as they are."""
    gone = credentials.logout()
    stderr.print("Signed out." if gone else "Nobody was signed in.")
    if json:
        print_json({"signedOut": gone})
