"""The platform's models, as a sandboxed environment on it reaches them: by a relay, as the platform is closed to it."""

from __future__ import annotations

import os
from urllib.parse import urlsplit

from benchmax.net.origins import LOOPBACK, Origin, origin

RELAY = "BENCHMAX_MODEL_RELAY"
"""In such an environment: the platform's address, and where its models are reached instead."""


def reached_at(url: str) -> str:
    """The address at which a server of models is reached from here."""
    platform, _, relay = os.environ.get(RELAY, "").partition(" ")
    if not relay or _origin(url) != _origin(platform):
        return url
    parts, at = urlsplit(url), urlsplit(relay)
    return parts._replace(scheme=at.scheme, netloc=at.netloc).geturl()


def _origin(url: str) -> Origin:
    """Where it leads; all names of this machine are one."""
    found = origin(url)
    return found._replace(host="localhost") if found.host in LOOPBACK else found
