"""`benchmax endpoints` and `benchmax secrets`: model servers to evaluate against, and what runs may know."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from benchmax.cli.output import Json, print_answer, print_result, print_rows, safe
from benchmax.cli.platform.account import read_hidden
from benchmax.cli.platform.connection import check_web_address, platform
from benchmax.errors import UsageError

endpoints = typer.Typer(help="List, add and remove model servers to evaluate against.", no_args_is_help=True)
secrets = typer.Typer(help="List, set and remove secrets that your runs get.", no_args_is_help=True)


@endpoints.command("list")
def list_endpoints(json: Json = False) -> None:
    """Show your model servers; never their keys."""
    with platform() as client:
        found = client.list_endpoints()

    def cells(each: Mapping[str, Any]) -> tuple[str, ...]:
        return each["id"], each["name"], each["baseUrl"], each["model"], "yes" if each["hasKey"] else "no"

    print_rows(found, json, ("id", "name", "address", "model", "key"), cells)


@endpoints.command()
def add(
    name: Annotated[str, typer.Argument(help="What you call it.")],
    url: Annotated[str, typer.Argument(help="Its OpenAI-compatible address, like https://host/v1.")],
    model: Annotated[str, typer.Argument(help="The model to ask it for.")],
    key: Annotated[bool, typer.Option("--key", help="Ask for its API key, or read it from stdin.")] = False,
    json: Json = False,
) -> None:
    """Add a model server. Its key is kept encrypted."""
    check_web_address(url, "https://host/v1")
    secret = read_hidden(f"API key of {name}") if key else ""
    with platform() as client:
        made = client.create_endpoint(name, url, model, api_key=secret)
    note = f"Added. Compare with it: benchmax runs compare RUN endpoint:{safe(made['id'])}"
    print_result(made, json, made["id"], note)


@endpoints.command("rm")
def remove_endpoint(
    endpoint_id: Annotated[str, typer.Argument(help="Its id, as `benchmax endpoints list` shows it.")],
    json: Json = False,
) -> None:
    """Forget a model server and its key."""
    with platform() as client:
        print_answer(client.delete_endpoint(endpoint_id), json)


SecretName = Annotated[str, typer.Argument(help="The environment variable's name.")]


@secrets.command("list")
def list_secrets(json: Json = False) -> None:
    """Show the names of your secrets; never their values."""
    with platform() as client:
        found = client.list_secrets()
    print_rows(found, json, ("name", "made"), lambda each: (each["name"], each["createdAt"]))


@secrets.command("set")
def set_secret(name: SecretName, json: Json = False) -> None:
    """Store a secret: asked for, or read from stdin. Your runs get it as an environment variable."""
    _check(name)
    value = read_hidden(f"Value of {name}")
    if not value:
        raise UsageError(f"No value was given. Type it, or pipe it: benchmax secrets set {name} < file")
    with platform() as client:
        print_answer(client.set_secret(name, value), json)


@secrets.command("rm")
def remove_secret(name: SecretName, json: Json = False) -> None:
    """Forget a secret."""
    _check(name)
    with platform() as client:
        print_answer(client.delete_secret(name), json)


def _check(name: str) -> None:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name, re.ASCII):
        raise UsageError(f"{name!r} cannot be an environment variable. Use letters, digits and _, no digit first.")
