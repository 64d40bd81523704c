"""What stands behind the colon of `verifiers:gsm8k?split=test`: an id, and settings as in a URL."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl

from packaging.requirements import Requirement

from benchmax.adapters.trainer_status import installed_version
from benchmax.envs.loading import json_or_text
from benchmax.errors import UsageError


def id_and_settings(library: str, address: str) -> tuple[str, dict[str, Any]]:
    """The id, and the settings with their values read as JSON where they are JSON."""
    name, _, query = address.partition("?")
    if not name:
        raise UsageError(f"{library}: names no environment. Write its id behind the colon: {library}:ID")
    return name, {key: json_or_text(text) for key, text in parse_qsl(query)}


def class_name(*parts: str) -> str:
    """A name for the class of an imported environment."""
    return "".join(
        word.capitalize() for part in parts for word in "".join(c if c.isalnum() else " " for c in part).split()
    )


def need(pin: str) -> None:
    """Raise UsageError with what to install, unless the library is there."""
    name = Requirement(pin).name
    if installed_version(name) is None:
        raise UsageError(
            f"Environments of {name} need the package {name!r}, which is not installed. Run: pip install '{pin}'"
        )
