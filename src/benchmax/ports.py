"""TCP ports of this machine's loopback address."""

from __future__ import annotations

import random
import socket

DEFAULT_PORT = 8321
"""Where the platform listens, unless it is told or another does."""
QUIET_PORTS = range(20_000, 32_000)
"""Which systems do not give to whoever asks for any port, as every connection does."""


def is_free(port: int) -> bool:
    """Whether nobody listens there at the moment."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def free_port() -> int:
    """One that nobody is likely to get before it is bound."""
    for port in random.SystemRandom().sample(QUIET_PORTS, 100):
        if is_free(port):
            return port
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
