"""Which addresses a model's URL may lead to, and that what was checked is what is dialled (S24)."""

import asyncio
import ipaddress
import socket

import pytest

from benchmax.errors import ConfigError, UsageError
from benchmax.models import Sampling
from benchmax.models.address_rules import AddressRules, PinnedResolver, pin
from benchmax.models.endpoints import endpoint_model
from benchmax.models.http import HttpModel
from benchmax.testing import FakeModelServer

PUBLIC, OWN = AddressRules(), AddressRules(private=True)


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "::1", "fc00::1", "::ffff:10.0.0.1", "64:ff9b::a00:1",
     "2002:a00:1::", "100.64.0.1"],
)  # fmt: skip
def test_private_addresses_are_for_a_platform_of_ones_own(address):
    found = ipaddress.ip_address(address)
    assert not PUBLIC.allows(found)


@pytest.mark.parametrize("address", ["127.0.0.1", "10.1.2.3", "::1", "::ffff:127.0.0.1", "fc00::1", "100.64.0.1"])
def test_a_platform_of_ones_own_may_call_them(address):
    assert OWN.allows(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "address",
    ["169.254.169.254", "::ffff:169.254.169.254", "fe80::1", "0.0.0.0", "::", "224.0.0.1", "ff02::1",
     "64:ff9b::a9fe:a9fe", "64:ff9b:1:a9fe:a9:fe00:808:808"],
)  # fmt: skip
def test_metadata_and_nowhere_are_never_called(address):
    assert not OWN.allows(ipaddress.ip_address(address))


def test_public_addresses_are():
    assert PUBLIC.allows(ipaddress.ip_address("93.184.215.14"))
    assert PUBLIC.allows(ipaddress.ip_address("2606:4700::1111"))
    assert PUBLIC.allows(ipaddress.ip_address("64:ff9b::5db8:d70e"))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "0177.0.0.1", "0", "[::1]"])
async def test_every_spelling_of_loopback_is_found_out(host, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "*")
    with pytest.raises(UsageError, match="may not be called"):
        await pin(f"http://{host}:8000/v1", PUBLIC)


async def test_what_was_looked_up_is_dialled_whatever_the_name_means_later(monkeypatch):
    """A resolver that gives a good address first and another one afterwards is asked once."""
    monkeypatch.setenv("NO_PROXY", "*")
    asked = []

    async with FakeModelServer("hello") as server:
        port = int(server.base_url.rsplit(":", 1)[1].split("/")[0])

        async def rebinding(host, port, **options):
            asked.append(host)
            address = "127.0.0.1" if len(asked) == 1 else "169.254.169.254"
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", rebinding)
        url = f"http://rebinding.test:{port}/v1"
        async with HttpModel("m", url, "", resolver=await pin(url, OWN)) as model:
            reply = await model.converse(sampling=Sampling()).reply([{"role": "user", "content": "hi"}])
        assert reply.message["content"] == "hello"
        assert server.headers[0]["Host"] == f"rebinding.test:{port}"
    assert asked == ["rebinding.test"]
    with pytest.raises(UsageError, match="may not be called"):
        await pin(url, OWN)


async def test_one_bad_address_among_good_ones_refuses_all(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "*")

    async def both(host, port, **options):
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in ("93.184.215.14", "10.0.0.1")]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", both)
    with pytest.raises(UsageError, match="BENCHMAX_ENDPOINT_HOSTS"):
        await pin("https://two.test/v1", PUBLIC)
    assert await pin("https://two.test/v1", AddressRules.of({"hosts": ["Two.test"]})) is None


async def test_a_pinned_resolver_answers_for_no_other_host():
    pinned = PinnedResolver("a.test", ["93.184.215.14"])
    assert [each["host"] for each in await pinned.resolve("A.test", 443)] == ["93.184.215.14"]
    with pytest.raises(OSError, match=r"is not a\.test"):
        await pinned.resolve("b.test", 443)


async def test_what_is_no_address_is_said(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "*")
    with pytest.raises(ConfigError, match="http"):
        await pin("ftp://x", OWN)
    with pytest.raises(UsageError, match="cannot be found"):
        await pin("http://no-such-host.invalid/v1", OWN)


async def test_behind_a_proxy_names_are_the_proxys_business_but_addresses_are_not(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.test:3128")
    monkeypatch.setenv("http_proxy", "http://proxy.test:3128")
    monkeypatch.setenv("NO_PROXY", "")
    monkeypatch.setenv("no_proxy", "")
    assert await pin("http://anything.test/v1", PUBLIC) is None
    with pytest.raises(UsageError, match="may not be called"):
        await pin("http://169.254.169.254/v1", OWN)


@pytest.mark.parametrize(
    ("url", "field"),
    [
        ("https://api.openai.com/v1", "max_completion_tokens"),
        ("https://API.openai.com:443/v1", "max_completion_tokens"),
        ("https://proxy.example/api.openai.com/v1", "max_tokens"),
    ],
)
async def test_openai_gets_the_new_name_of_the_limit(url, field):
    reach = {"hosts": ["api.openai.com", "proxy.example"]}
    async with await endpoint_model({"base_url": url, "model": "m", "reach": reach}) as model:
        assert model.max_tokens_field == field
