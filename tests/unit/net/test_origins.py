"""Where an address leads, and the name in a Host header."""

import pytest

from benchmax.net.origins import Origin, host_name, is_loopback, origin


def test_an_origin_has_the_port_of_its_scheme():
    assert origin("https://API.example/v1") == ("https", "api.example", 443)
    assert origin("http://[::1]:8321/x") == Origin("http", "::1", 8321)
    assert origin("https://api.example") != origin("http://api.example")
    assert origin("http://host:port") == origin("http://[::1") == ("", "", 0)


@pytest.mark.parametrize(
    ("header", "name"),
    [("LOCALHOST:9", "localhost"), ("[::1]:80", "::1"), ("[::1]", "::1"), ("node-7", "node-7"),
     ("10.0.0.3:1", "10.0.0.3"),
     ("[::1]x", None), ("[::1", None), ("a@b", None), ("a/b", None), ("a:1:2", None), ("a:x", None), ("", None),
     ("localhost\tx", None), ("localhost\n", None)],
)  # fmt: skip
def test_a_host_header_has_a_name_and_nothing_else(header, name):
    assert host_name(header) == name


def test_only_this_machine_reaches_a_loopback_address():
    assert all(map(is_loopback, ("localhost", "127.0.0.1", "127.8.8.8", "::1")))
    assert not any(map(is_loopback, ("", "0.0.0.0", "::", "10.0.0.1", "localhost.evil.test")))
