"""`benchmax doctor`: is this machine ready? Python, extras, a model, the sandbox, the platform and who you are to it.

With `--trainers`: which outside trainers work here, and what to pin.
Nothing is fetched or changed. (`benchmax validate` is the doctor of an environment.)
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Annotated

import typer

import benchmax
from benchmax import extras
from benchmax.cli.exit_codes import FAILED
from benchmax.cli.output import Json, print_json, safe, stderr
from benchmax.errors import BenchmaxError
from benchmax.inference.weights.store import list_models
from benchmax.platform.sdk.auto_start import local_url
from benchmax.platform.sdk.client import TrainerClient
from benchmax.platform.sdk.credentials import named_url
from benchmax.sandbox import capabilities

PYTHONS = ((3, 11), (3, 14))
EXTRAS = ("data", "train", "platform", "mcp", "envs")
_MARKS = {"ok": "[green]✓[/]", "missing": "[yellow]![/]", "failed": "[red]✗[/]"}


@dataclass(frozen=True, slots=True)
class Readiness:
    name: str
    state: str
    """`ok`, `missing` (some commands need it) or `failed`."""
    says: str


def doctor(
    trainers: Annotated[
        bool, typer.Option("--trainers", help="Check the outside trainers instead: which installed versions work.")
    ] = False,
    json: Json = False,
) -> None:
    """Check this machine: Python, extras, models, sandbox, platform; or, with --trainers, what trainers work with it.

    The exit code is 1 when Python or sign-in fail, or a trainer is installed in a version that does not work.
    """
    if trainers:
        from benchmax.adapters.trainer_status import trainer_statuses

        checks = [Readiness(each.name, each.state, each.says) for each in trainer_statuses()]
    else:
        checks = [_python(), *_extras(), _model(), *_sandbox(), _platform()]
    for check in checks:
        stderr.print(f"{_MARKS[check.state]} {check.name}: {safe(check.says)}")
    if json:
        print_json([asdict(check) for check in checks])
    if any(check.state == "failed" for check in checks):
        raise typer.Exit(FAILED)


def _python() -> Readiness:
    version = ".".join(map(str, sys.version_info[:3]))
    if PYTHONS[0] <= sys.version_info[:2] < PYTHONS[1]:
        return Readiness("python", "ok", f"{version}, benchmax {benchmax.__version__}")
    return Readiness("python", "failed", f"{version}. benchmax needs 3.11, 3.12 or 3.13: install one of them.")


def _extras() -> Iterator[Readiness]:
    for name in EXTRAS:
        lost = extras.missing(name)
        says = f"{', '.join(lost)} missing. {extras.install(name)}" if lost else "installed"
        yield Readiness(f"extra {name}", "missing" if lost else "ok", says)


def _model() -> Readiness:
    names = [model.card.name for model in list_models()]
    if names:
        return Readiness("models", "ok", ", ".join(names))
    return Readiness("models", "missing", "none here yet. benchmax models pull smollm2-135m")


def _sandbox() -> Iterator[Readiness]:
    """What of the sandbox holds on this machine, and for each guard that does not, what to do."""
    try:
        found = asyncio.run(capabilities())
    except BenchmaxError as error:
        yield Readiness("sandbox", "missing", str(error))
        return
    yield Readiness("sandbox", "ok" if found.level == "boundary" else "missing", found.describe())
    for names, says in found.advice().items():
        yield Readiness(f"sandbox without {names}", "missing", says)


def _platform() -> Readiness:
    """Whether a launch would be let in; the platform of this machine is not started for it."""
    try:
        address = named_url() or local_url()
        if address is None:
            return Readiness("platform", "ok", "this machine's own, which needs no sign-in; `benchmax up` starts it")
        with TrainerClient(base_url=address, timeout=10.0) as client:
            return Readiness("platform", "ok", f"signed in to {address} as {client.whoami()['email']}")
    except (BenchmaxError, OSError) as error:
        return Readiness("platform", "failed", str(error))
