"""Profiles: named platforms in `~/.castform/config.toml`, and which of them is in use.

A profile holds addresses. It is named by `BENCHMAX_PROFILE` (`CASTFORM_PROFILE`), else by `active_profile` in the file:

    active_profile = "work"

    [profiles.work]
    platform_url = "https://benchmax.example.org"
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmax.errors import ConfigError

ADDRESSES = {
    "BASE_DOMAIN": "domain",
    "PLATFORM_URL": "platform_url",
    "LLM_URL": "llm_url",
    "AUTH_URL": "auth_url",
    "WEB_APP_URL": "app_url",
}
"""Settings a profile can hold, and their names there."""


def variable(name: str) -> str:
    """The variable `BENCHMAX_<name>`, else `CASTFORM_<name>`; blank values do not count."""
    found = (os.environ.get(prefix + name, "").strip() for prefix in ("BENCHMAX_", "CASTFORM_"))
    return next(filter(None, found), "")


def config_path() -> Path:
    """The file of profiles."""
    return Path(variable("CONFIG_PATH") or "~/.castform/config.toml").expanduser()


def read_profiles() -> dict[str, Any]:
    """The content of the file: `active_profile`, and a table for each profile under `profiles`."""
    path = config_path()
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read ({error}). Correct or remove it.") from None


def profile_name() -> str:
    """The profile in use; empty when there is none."""
    return variable("PROFILE") or str(read_profiles().get("active_profile") or "")


def named_profiles(tree: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The table of each profile in the content of the file, by its name."""
    tables = tree.get("profiles")
    return {name: each for name, each in tables.items() if isinstance(each, dict)} if isinstance(tables, dict) else {}


def address(setting: str) -> str:
    """An address of the profile in use; empty when there is no profile, or it does not set the address."""
    name = profile_name()
    if not name or setting not in ADDRESSES:
        return ""
    found = named_profiles(read_profiles()).get(name)
    if found is None:
        raise ConfigError(f"There is no profile {name!r} in {config_path()}. See: benchmax profile list")
    return str(found.get(ADDRESSES[setting]) or "").strip()
