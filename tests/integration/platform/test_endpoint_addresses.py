"""An endpoint that could never be called is refused when it is added; a name is checked when it is dialled."""

import pytest
from typer.testing import CliRunner

from benchmax.cli.platform.endpoints_and_secrets import endpoints
from benchmax.errors import UsageError
from platform_world import LiveServer

NEVER = (
    "http://169.254.169.254/latest", "http://[::ffff:169.254.169.254]/v1", "http://2852039166/v1",
    "http://0xa9.0xfe.0xa9.0xfe/v1", "http://[fe80::1]/v1", "http://0.0.0.0:8000/v1", "https://224.0.0.1/v1",
)  # fmt: skip
PRIVATE = ("http://127.0.0.1:8000/v1", "http://10.0.0.7/v1", "http://[::1]:8000/v1", "http://2130706433/v1")
FINE = ("https://models.example.org/v1", "https://93.184.215.14/v1", "http://localhost:8000/v1")


@pytest.fixture
def public(tmp_path):
    with LiveServer(tmp_path, allowed_hosts=frozenset({"platform.example"})) as server:
        yield server


def add(client, url):
    return client.post("/v1/endpoints", json={"name": url, "baseUrl": url, "model": "m", "apiKey": "sk-k"})


def test_addresses_nobody_may_call_are_refused_and_not_kept(live):
    _, key = live.user("never@example.org")
    with live.client(key) as client:
        for url in NEVER:
            refused = add(client, url)
            assert refused.status_code == 400, url
            assert "may not be called from here. Use a public address" in refused.json()["error"]
        assert client.get("/v1/endpoints").json() == {"endpoints": []}
        for url in (*PRIVATE, *FINE):
            assert add(client, url).status_code == 201, url


def test_a_platform_for_others_takes_no_private_address_unless_its_operator_says_so(public, monkeypatch):
    _, key = public.user()
    with public.client(key) as client:
        for url in (*NEVER, *PRIVATE):
            assert "BENCHMAX_ENDPOINT_HOSTS" in add(client, url).json()["error"], url
        for url in FINE:
            assert add(client, url).status_code == 201, "a name is checked when it is dialled"
        monkeypatch.setenv("BENCHMAX_ENDPOINT_HOSTS", "10.0.0.7")
        assert add(client, "http://10.0.0.7/v1").status_code == 201


@pytest.mark.parametrize(
    "url", ["ftp://host/v1", "file:///etc/passwd", "host/v1", "https://me:secret@host/v1", "https://host/v1\n"]
)
def test_what_is_no_web_address_is_told_how_to_write_one(live, url):
    with live.client(live.user()[1]) as client:
        refused = add(client, url)
    assert refused.status_code == 400
    assert "is not a web address. Write it as https://host/v1" in refused.json()["error"]


@pytest.mark.parametrize("url", ["http://host:99999/v1", "http://[::1/v1", "http:///v1"])
def test_a_broken_address_is_a_mistake_of_the_caller(live, url):
    with live.client(live.user()[1]) as client:
        refused = add(client, url)
    assert refused.status_code == 400
    assert "address" in refused.json()["error"]


def test_the_command_says_it_in_one_line(live, monkeypatch):
    monkeypatch.setenv("CASTFORM_PLATFORM_URL", live.url)
    monkeypatch.setenv("CASTFORM_API_KEY", live.user()[1])
    result = CliRunner().invoke(endpoints, ["add", "meta", "http://169.254.169.254/v1", "m"])
    assert isinstance(result.exception, UsageError)
    assert str(result.exception).startswith("169.254.169.254 resolves to an address that may not be called from here.")
    assert "\n" not in str(result.exception)
