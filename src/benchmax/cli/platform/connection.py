"""What commands that talk to a platform share: a client, and what the platform refuses as exit codes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from benchmax.cli.exit_codes import AUTH
from benchmax.cli.output import stop
from benchmax.errors import NotFoundError, UsageError
from benchmax.platform.sdk import credentials
from benchmax.platform.sdk.client import TrainerClient
from benchmax.platform.sdk.exceptions import AuthenticationError, TrainerError

RunId = Annotated[str, typer.Argument(help="The run's id.")]
Settings = Annotated[list[str] | None, typer.Option("--set", help="KEY=VALUE of a launch argument; repeatable.")]


@contextmanager
def refusals() -> Iterator[None]:
    """What the platform refuses, with the exit code of its kind."""
    try:
        yield
    except AuthenticationError as error:
        stop(_with_source(error), AUTH)
    except TrainerError as error:
        if error.status_code == 403:
            stop(str(error), AUTH)
        if error.status_code == 404:
            raise NotFoundError(str(error)) from None
        if error.status_code in (400, 422):
            raise UsageError(str(error)) from None
        raise


def _with_source(error: AuthenticationError) -> str:
    """The refusal; a key that was left in the environment is easily forgotten, so its variable is named."""
    variable = credentials.key_variable()
    if error.status_code != 401 or variable is None:
        return str(error)
    return f"{error} The key is that of {variable}: correct the variable, or unset it to use your sign-in."


def check_web_address(url: str, example: str) -> None:
    """Raise for what cannot be the address of a server, before anything is asked or sent."""
    if not re.fullmatch(r"https?://[^\s@]+", url):
        raise UsageError(f"{url!r} is not a web address. Write it as {example}, without user or password.")


@contextmanager
def platform() -> Iterator[TrainerClient]:
    """A client for the platform this machine talks to; it is started when there is none."""
    with refusals(), TrainerClient() as client:
        yield client
