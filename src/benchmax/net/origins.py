"""Where an address leads, which names mean this machine, and the name in a Host header."""

from __future__ import annotations

import ipaddress
import re
from typing import NamedTuple
from urllib.parse import urlsplit

PORTS = {"https": 443, "http": 80}
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^\[\]:@/\\?#\s]+))(?::[0-9]{1,5})?", re.IGNORECASE)


class Origin(NamedTuple):
    """What a key that is meant for one server may be sent to."""

    scheme: str
    host: str
    port: int


def origin(url: str) -> Origin:
    """Scheme, host and port of a web address; empty ones for anything else."""
    try:
        parts = urlsplit(url)
        return Origin(parts.scheme, parts.hostname or "", parts.port or PORTS.get(parts.scheme, 0))
    except ValueError:
        return Origin("", "", 0)


def is_loopback(host: str) -> bool:
    """Whether a server that listens there is reached from this machine alone."""
    return host == "localhost" or (is_ip(host) and ipaddress.ip_address(host).is_loopback)


def is_ip(host: str) -> bool:
    """Whether it is an IP address, not a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def host_name(header: str) -> str | None:
    """The name in a Host header, in lower case and without its port; None where it has anything else in it."""
    found = _HOST.fullmatch(header)
    return None if found is None else (found[1] or found[2]).lower()
