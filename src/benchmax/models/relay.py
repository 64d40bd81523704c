"""The platform's models, as a sandboxed environment on it reaches them: by a relay, as the platform is closed to it."""

from __future__ import annotations

import os
from urllib.parse import urlsplit

RELAY = "BENCHMAX_MODEL_RELAY"
"""In such an environment: the platform's address, and where its models are reached instead."""
_LOCAL = frozenset({"127.0.0.1", "localhost", "::1"})
_PORTS = {"https": 443, "http": 80}


def reached_at(url: str) -> str:
    """The address at which a server of models is reached from here."""
    platform, _, relay = os.environ.get(RELAY, "").partition(" ")
    if not relay or _place(url) != _place(platform):
        return url
    parts, at = urlsplit(url), urlsplit(relay)
    return parts._replace(scheme=at.scheme, netloc=at.netloc).geturl()


def _place(url: str) -> tuple[str, str | None, int | None]:
    """Scheme, host and port; all names of this machine are one."""
    try:
        parts = urlsplit(url)
        host = "localhost" if parts.hostname in _LOCAL else parts.hostname
        return parts.scheme, host, parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        return "", None, None
