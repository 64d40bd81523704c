"""Addresses of the platform, and which key is sent where. Read from the environment at each call, never at import.

Every setting has two spellings, `BENCHMAX_X` and `CASTFORM_X`; the first wins. Addresses that neither sets come from
the profile in use.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from benchmax import profiles
from benchmax.errors import ConfigError
from benchmax.net.origins import PORTS, origin

PUBLISHED_URL = "https://api.castform.com"
"""The REST API that published scripts use."""


def setting(name: str, default: str = "") -> str:
    """The value of `BENCHMAX_<name>`, else of `CASTFORM_<name>`, else the profile's, else the default."""
    return profiles.variable(name) or profiles.address(name) or default


def home() -> Path:
    """The folder for everything benchmax keeps between runs: `BENCHMAX_HOME`, ~/.cache/benchmax unless set."""
    return Path(os.environ.get("BENCHMAX_HOME") or Path.home() / ".cache" / "benchmax").expanduser()


def data_dir() -> Path:
    """The data directory of this machine's platform: `BENCHMAX_DATA`, ~/.benchmax unless set."""
    return Path(setting("DATA") or "~/.benchmax").expanduser()


def base_domain() -> str:
    return setting("BASE_DOMAIN", "castform.com").strip("/")


def hosted_url() -> str:
    """The REST API of a hosted platform."""
    return f"https://api.{base_domain()}"


def platform_url() -> str:
    """The REST API."""
    return _url("PLATFORM_URL", hosted_url())


def web_app_url() -> str:
    """The console."""
    return _url("WEB_APP_URL", f"https://app.{base_domain()}")


def llm_url() -> str:
    """The OpenAI-compatible endpoint; a self-hosted platform serves it itself."""
    hosted = platform_url() == hosted_url()
    return _url("LLM_URL", f"https://llm.{base_domain()}/v1" if hosted else f"{platform_url()}/v1")


def auth_url() -> str:
    """Sign-in and device login."""
    return _url("AUTH_URL", f"https://auth.{base_domain()}")


def rollout_url() -> str:
    """The rollout server."""
    return _url("ROLLOUT_URL", f"https://autobots.{base_domain()}")


def env_token(var: str) -> Callable[[], str]:
    """A token provider that reads the variable at each call, so that a pickled environment holds no secret."""

    def token() -> str:
        value = os.environ.get(var, "").strip()
        if not value:
            raise ConfigError(f"The environment variable {var} is not set. Export it with your API key.")
        return value

    return token


def platform_token() -> str | None:
    """The bearer from the environment: the file at ACT_AS_TOKEN_PATH, then the API key variables."""
    path = os.environ.get("ACT_AS_TOKEN_PATH", "").strip()
    if path:
        try:
            return Path(path).read_text(encoding="utf-8").strip() or None
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"ACT_AS_TOKEN_PATH names {path}, which cannot be read ({error}). Fix or unset it."
            ) from None
    return os.environ.get("PLATFORM_API_KEY", "").strip() or setting("API_KEY") or None


def resolve_judge_key(api_key: str | None, base_url: str | None) -> str | None:
    """The key to send to a judge. The platform's token is never sent to another host."""
    if api_key:
        return api_key
    if base_url and origin(base_url) in {origin(platform_url()), origin(llm_url())}:
        return platform_token()
    return os.environ.get("OPENAI_API_KEY", "").strip() or None


def _url(name: str, default: str) -> str:
    url = setting(name, default).rstrip("/")
    if origin(url).scheme not in PORTS:
        raise ConfigError(
            f"{name} is {url!r}, which is not a web address. Write it as https://host or http://host:port."
        )
    return url
