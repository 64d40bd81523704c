"""`benchmax keys`: API keys of the platform."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from benchmax.cli.output import Json, print_answer, print_result, print_rows
from benchmax.cli.platform.connection import platform
from benchmax.errors import UsageError
from benchmax.platform.wire.values import SCOPES

app = typer.Typer(help="List, make and revoke API keys.", no_args_is_help=True)


@app.command("list")
def list_keys(json: Json = False) -> None:
    """Show your keys; never their text."""
    with platform() as client:
        found = client.list_keys()

    def cells(key: Mapping[str, Any]) -> tuple[str, ...]:
        ends = "revoked" if key["revoked"] else key["expiresAt"] or "never"
        scopes, used = ", ".join(key["scopes"]), key["lastUsedAt"] or "never"
        return key["id"], key["name"], key["prefix"], scopes, key["createdAt"], ends, used

    columns = ("id", "name", "begins with", "may", "made", "ends", "last used")
    print_rows(found, json, columns, cells, style=lambda key: "dim" if key["revoked"] else "")


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="What the key is for.")] = "",
    scope: Annotated[list[str] | None, typer.Option(help="read, write or admin; repeatable (read and write).")] = None,
    days: Annotated[float | None, typer.Option(min=0.01, max=3650, help="Until it ends; never when not given.")] = None,
    json: Json = False,
) -> None:
    """Make a key. It is printed now, and can never be shown again."""
    scopes = scope or ["read", "write"]
    if unknown := [each for each in scopes if each not in SCOPES]:
        raise UsageError(f"There is no scope {unknown[0]!r}. Use {', '.join(SCOPES)}.")
    with platform() as client:
        made = client.create_key(name, scopes=scopes, days=days)
    note = "Keep it now; it is not shown again. Use it as CASTFORM_API_KEY."
    print_result(made, json, made["key"], note)


@app.command()
def revoke(
    key_id: Annotated[str, typer.Argument(help="The key's id, as `benchmax keys list` shows it.")], json: Json = False
) -> None:
    """Revoke a key for good."""
    with platform() as client:
        print_answer(client.revoke_key(key_id), json)
