"""TCP ports of this machine's loopback address."""

from __future__ import annotations

import random
import socket

DEFAULT_PORT = 8321
"""Where the platform listens, unless another port is asked for or this one is taken."""
QUIET_PORTS = range(20_000, 32_000)
"""Ports outside the range from which systems assign one to every outgoing connection."""


def is_free(port: int) -> bool:
    """Whether nothing listens on the port at the moment."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def free_port() -> int:
    """A free port that no other process is likely to get before it is bound."""
    for port in random.SystemRandom().sample(QUIET_PORTS, 100):
        if is_free(port):
            return port
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
