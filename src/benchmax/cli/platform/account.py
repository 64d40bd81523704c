"""`benchmax login`, `logout` and `whoami`; and what every command that talks to a platform shares."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer
from rich.console import Console
from rich.table import Table

from benchmax import config
from benchmax.cli.output import AUTH, print_json, safe, stop, visible, words
from benchmax.errors import NotFoundError, UsageError
from benchmax.platform.sdk import credentials
from benchmax.platform.sdk.exceptions import AuthenticationError, TrainerError
from benchmax.platform.sdk.transport import Connection

if TYPE_CHECKING:
    from benchmax.platform.sdk.client import TrainerClient

Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
Url = Annotated[
    str | None, typer.Option("--url", help="The platform's address (CASTFORM_PLATFORM_URL, or this machine's own).")
]

PIPE_COLUMNS = 240


class AccountClient(Connection):
    """What a user has on the platform besides runs."""

    def whoami(self) -> dict[str, Any]:
        found: dict[str, Any] = self._get("/v1/whoami")
        return found

    def keys(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._get("/v1/keys")["keys"]
        return found

    def create_key(self, name: str, scopes: list[str], days: float | None) -> dict[str, Any]:
        found: dict[str, Any] = self._json("POST", "/v1/keys", json={"name": name, "scopes": scopes, "days": days})
        return found

    def revoke_key(self, key_id: str) -> dict[str, Any]:
        found: dict[str, Any] = self._json("DELETE", f"/v1/keys/{quote(key_id, safe='')}")
        return found

    def files(self, prefix: str) -> list[dict[str, Any]]:
        """Uploads whose path begins so, with size and SHA-256."""
        found: list[dict[str, Any]] = self._get("/v1/storage/files", prefix=prefix)["files"]
        return found


@contextmanager
def refusals() -> Iterator[None]:
    """What the platform refuses, with the exit code of its kind."""
    try:
        yield
    except AuthenticationError as error:
        stop(str(error), AUTH)
    except TrainerError as error:
        if error.status_code == 403:
            stop(str(error), AUTH)
        if error.status_code == 404:
            raise NotFoundError(str(error)) from None
        if error.status_code in (400, 422):
            raise UsageError(str(error)) from None
        raise


@contextmanager
def platform() -> Iterator[TrainerClient]:
    """A client for the platform this machine talks to; it is started when there is none."""
    from benchmax.platform.sdk.client import TrainerClient

    with refusals(), TrainerClient() as client:
        yield client


def new_table(*columns: str) -> Table:
    """A table whose first column, the id, is never cut or broken."""
    table = Table(box=None, header_style="bold")
    for number, name in enumerate(columns):
        table.add_column(name, no_wrap=number == 0, overflow="fold")
    return table


def print_table(table: Table) -> None:
    """On stdout; wide in a pipe, where there is no screen to fit."""
    Console(width=None if sys.stdout.isatty() else PIPE_COLUMNS).print(table)


def whoami(url: Url = None, json: Json = False) -> None:
    """Show who the platform takes you for."""
    with refusals(), AccountClient(base_url=url) as account:
        found = account.whoami() | {"platform": account.base_url}
    if json:
        print_json(found)
    else:
        typer.echo(visible(f"{found['email']} ({', '.join(found['scopes'])}) on {found['platform']}"))


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
        own = address == credentials.local_url()
        path = _paste(address) if key else credentials.data_dir() if own else _confirm(address, browser)
        with AccountClient(base_url=address) as account:
            found = account.whoami()
    words.print(f"Signed in to {safe(address)} as {safe(found['email'])}; kept in {safe(path)}.", soft_wrap=True)
    if config.platform_token():
        words.print("An API key is set in the environment; it is used in place of this sign-in.")
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
    with AccountClient(token, address) as account:
        account.whoami()
    return credentials.keep_session(address, token)


def _confirm(address: str, browser: bool) -> Any:
    import webbrowser

    def say(text: str) -> None:
        words.print(visible(text), markup=False, soft_wrap=True)

    return credentials.login(address, say=say, open_page=webbrowser.open if browser else None)


def logout(json: Json = False) -> None:
    """Forget the sign-in of this machine. API keys in the environment stay as they are."""
    gone = credentials.logout()
    words.print("Signed out." if gone else "Nobody was signed in.")
    if json:
        print_json({"signedOut": gone})
