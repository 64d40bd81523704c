"""Which addresses a URL that a user gave may lead to.

Its host is looked up once and checked, and only the addresses found are connected to: a name that is looked up again
can resolve to another machine the second time (DNS rebinding). Link-local and multicast addresses and the metadata
services of clouds, which hold the machine's keys, are never allowed. Loopback and private networks are allowed only on
a platform of a single person. Behind a proxy the proxy resolves names, and its rules apply.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from aiohttp.abc import AbstractResolver, ResolveResult

from benchmax.errors import UsageError
from benchmax.models.http import chat_url, proxy_for

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_NEVER = tuple(
    ipaddress.ip_network(each)
    for each in (
        "100.100.100.200/32",  # Alibaba
        "168.63.129.16/32",  # Azure's host, a public address
        "192.0.0.192/32",  # Oracle
        "fd00:ec2::/32",  # Amazon
        "fd20:ce::/32",  # Google
        "fd00:42::/32",  # Scaleway
        "fd00:a9fe:a9fe::/48",  # others: 169.254.169.254 in a private network
        "64:ff9b:1::/48",  # NAT64 of a local network, which alone knows where in it an IPv4 address stands
    )
)
"""Metadata services that are not link-local, as 169.254.169.254 is, and what may lead to them."""


@dataclass(frozen=True, slots=True)
class AddressRules:
    """Which addresses may be connected to."""

    private: bool = False
    """Loopback and private networks."""
    hosts: tuple[str, ...] = ()
    """Names and addresses that are allowed whatever they resolve to."""

    @classmethod
    def of(cls, raw: Mapping[str, Any] | None) -> AddressRules:
        """Read the JSON form; without one, only public addresses are allowed."""
        raw = raw or {}
        return cls(bool(raw.get("private")), tuple(str(host).lower() for host in raw.get("hosts") or ()))

    def allows(self, address: Address) -> bool:
        return all(self._allows(each) for each in _embedded(address))

    def _allows(self, address: Address) -> bool:
        if address.is_unspecified or address.is_multicast or address.is_link_local:
            return False
        if any(address in network for network in _NEVER):
            return False
        if address.is_global and not address.is_reserved:
            return True
        return self.private and (address.is_loopback or not address.is_reserved)


class PinnedResolver(AbstractResolver):
    """Resolves one host to the addresses that were checked, and no other host."""

    def __init__(self, host: str, addresses: Sequence[str]) -> None:
        self.host = host
        self.addresses = list(addresses)

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        if host.lower() != self.host:
            raise OSError(f"{host} is not {self.host}")
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for address in self.addresses
        ]

    async def close(self) -> None:
        """Nothing is open."""


async def pin(base_url: str, rules: AddressRules) -> PinnedResolver | None:
    """Resolve and check a URL's host; raises UsageError when it is not allowed. None: nothing needs pinning."""
    host, port = _host(base_url)
    if host in rules.hosts:
        return None
    literal = _literal(host)
    if literal is None and proxy_for(base_url):
        return None
    addresses = [host] if literal else await _look_up(host, port)
    _check(host, addresses, rules)
    return None if literal else PinnedResolver(host, addresses)


def check_literal(base_url: str, rules: AddressRules) -> None:
    """Raise UsageError when a URL's host is an address, in any spelling, that is not allowed. No name is looked up."""
    host, port = _host(base_url)
    if host in rules.hosts:
        return
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        return  # a name: its addresses are checked when it is connected to
    _check(host, [str(each[4][0]) for each in found], rules)


def _check(host: str, addresses: Sequence[str], rules: AddressRules) -> None:
    for address in addresses:
        if not rules.allows(ipaddress.ip_address(address.partition("%")[0])):
            raise UsageError(
                f"{host} resolves to an address that may not be called from here. Use a public address, or have the "
                "platform's operator allow it with BENCHMAX_ENDPOINT_HOSTS."
            )


async def _look_up(host: str, port: int) -> list[str]:
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise UsageError(f"{host} cannot be found: {error}. Check the address.") from None
    return list(dict.fromkeys(str(each[4][0]) for each in found))


def _host(base_url: str) -> tuple[str, int]:
    """Host and port as the client will connect to them."""
    url = chat_url(base_url)
    return (url.raw_host or "").lower(), url.port or 0


def _literal(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _embedded(address: Address) -> list[Address]:
    """The address, and those embedded in it (IPv4 in IPv6)."""
    if isinstance(address, ipaddress.IPv4Address):
        return [address]
    if address.ipv4_mapped or address in _NAT64:
        return [ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)]
    inner = [address.sixtofour, *(address.teredo or ())]
    return [address, *(each for each in inner if each is not None)]
