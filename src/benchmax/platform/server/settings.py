"""How one server is set up."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from benchmax import limits
from benchmax.net.origins import LOOPBACK, is_loopback, origin
from benchmax.platform.store.datadir import DataDir

LIMITS = {
    "login": 600, "key": 10, "eval": 30, "device": 600, "doctor": 60, "export": 60, "session": 600, "rollout": 6000,
    "completion": 60_000, "webhook": 60, "model_session": 60_000,
}  # fmt: skip


@dataclass(frozen=True)
class ServerSettings:
    data: DataDir
    database_url: str | None = None
    """None is SQLite in the data directory."""
    host: str = "127.0.0.1"
    port: int = 0
    public_url: str | None = None
    """The address users see, when it is not http://host:port."""
    allowed_hosts: frozenset[str] = frozenset()
    """Host names served beyond loopback."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses whose X-Forwarded-* headers are believed."""
    console: Path | None = None
    """The built web console; None is the one that was installed."""
    body_bytes: int = 64 * limits.MIB
    upload_bytes: int = 4096 * limits.MIB
    idle_seconds: float = 30.0
    """An upload that sends nothing for so long is given up."""
    limits_per_hour: dict[str, int] = field(default_factory=lambda: dict(LIMITS))
    """Calls an hour for one user or address; also never more than a sixtieth, but at least 10, in a minute."""

    @property
    def is_loopback(self) -> bool:
        return is_loopback(self.host)

    @property
    def reached_at(self) -> str:
        """Where this machine reaches it: the loopback address for a server on every address."""
        try:
            address = ipaddress.ip_address(self.host or "0.0.0.0")
        except ValueError:  # a host by its name
            return self.host
        if not address.is_unspecified:
            return self.host
        return "127.0.0.1" if address.version == 4 else "::1"

    @cached_property
    def hosts(self) -> frozenset[str]:
        """Every name this server answers to; asked for at each request."""
        named = {origin(self.public_url or "").host or "127.0.0.1"}
        return LOOPBACK | self.allowed_hosts | named | {self.reached_at}
