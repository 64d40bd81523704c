"""The sandbox of an environment on the platform: used wherever the machine has one; what is missing is printed.

Without a boundary code of one user can read what belongs to another. So with several users it is refused, unless the
administrator insists (BENCHMAX_SANDBOX_INSIST=1); with one user it runs with what guards there are.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from benchmax.bundle.interpreters import HERE, find_interpreter
from benchmax.config import setting
from benchmax.envs.remote import Confinement
from benchmax.errors import SandboxUnavailable
from benchmax.sandbox import Capabilities, capabilities, insists

_from_runner: dict[str, Any] = {}
"""What the runner told this process, see `jobs.preparation.machine_message`."""


def receive(message: Mapping[str, Any]) -> None:
    """Remember the sandbox's part of the runner's message."""
    _from_runner.update(message.get("sandbox", {}))


def several_users() -> bool:
    return bool(_from_runner.get("several_users"))


def needs_python(version: str) -> None:
    """Of another minor version than this one's: the environment's sandbox shows that interpreter, too."""
    minor = ".".join(version.split(".")[:2])
    if minor != HERE:
        _from_runner["python"] = str(find_interpreter(minor).resolve().parents[1])


async def confinement() -> Confinement | None:
    """For an environment of this process's job; SandboxUnavailable where it must not run. Says once what is missing."""
    found = await capabilities()
    if found.level != "boundary":
        _accept(found)
    ports = tuple(_from_runner.get("closed_ports", ()))
    if ports and "landlock_tcp" not in found.guards:
        _say("The platform's own address is open to the environment: this kernel cannot close ports (Linux 6.7 can).")
        ports = ()
    if found.level == "none":
        return None
    read = [_from_runner.get("python", ""), *setting("SANDBOX_READ").split(os.pathsep)]
    return Confinement(read=tuple(filter(None, read)), closed_ports=ports, insist=True)


@contextmanager
def reachable_models(confined: Confinement | None) -> Iterator[dict[str, str]]:
    """Variables by which an environment's judge finds the platform's models, where its address is closed."""
    url = str(_from_runner.get("platform") or "")
    if confined is None or not confined.closed_ports or not url:
        yield {}
        return
    from benchmax.platform.runner.children.model_relay import ModelRelay

    with ModelRelay(url) as variables:
        yield variables


def _accept(found: Capabilities) -> None:
    if several_users() and not insists():
        raise SandboxUnavailable(
            f"This platform has several users, and its machine cannot keep their environments apart "
            f"({found.describe()}). Its administrator finds in `benchmax doctor` what to do, or may set "
            "BENCHMAX_SANDBOX_INSIST=1 if all users may see everything."
        )
    _say(f"The environment runs without a boundary: {found.describe()}. `benchmax doctor` says what to do.")


def _say(text: str) -> None:
    if text not in _from_runner:
        _from_runner[text] = True
        print(text, file=sys.stderr)  # noqa: T201 - into the log of the run
