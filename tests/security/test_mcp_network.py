"""S32: an MCP server that says `network: none` reaches nobody; one that serves HTTP is reached all the same."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmax.envs.mcp.server_config import parse_config
from benchmax.errors import EnvDefinitionError
from benchmax.sandbox.inside.landlock import version as landlock_version
from mcp_world import PROBE, make_workdir, opened

CONNECTS = PROBE.replace(
    'if __name__ == "__main__":',
    """
@server.tool()
def connect(port: int, kind: str) -> str:
    import socket
    try:
        with socket.socket(socket.AF_INET, getattr(socket, kind)) as sock:
            sock.settimeout(60)
            sock.connect(("127.0.0.1", port))
            sock.send(b"?")
    except OSError as error:
        return type(error).__name__
    return "connected"

@server.tool()
def listen() -> str:
    import socket
    try:
        socket.create_server(("127.0.0.1", 0)).close()
    except OSError as error:
        return type(error).__name__
    return "listens"

if __name__ == "__main__":""",
)


@pytest.fixture
def port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield int(listener.getsockname()[1])


def config(http: bool, network: str) -> str:
    server: dict[str, Any] = {"command": "python", "args": ["server.py"], "network": network}
    if http:
        server = {**server, "args": ["server.py", "${{ port }}"], "url": "http://127.0.0.1:${{ port }}/mcp"}
    return json.dumps({"mcpServers": {"it": server}})


@pytest.mark.skipif(landlock_version() < 4, reason="needs Linux 6.7")
@pytest.mark.parametrize("http", [False, True])
async def test_a_server_without_a_network_connects_and_listens_nowhere(tmp_path: Path, port: int, http: bool) -> None:
    async with opened(make_workdir(tmp_path / "w", CONNECTS, config(http, "none")), servers=1, spares=0) as env:
        await env.init_rollout("a")
        assert await env.run_tool("a", "remember", word="works") == "works"
        for kind in ("SOCK_STREAM", "SOCK_DGRAM"):
            assert await env.run_tool("a", "connect", port=port, kind=kind) == "PermissionError", kind
        assert await env.run_tool("a", "listen") == "PermissionError"


async def test_a_server_has_the_network_unless_it_says_none(tmp_path: Path, port: int) -> None:
    async with opened(make_workdir(tmp_path / "w", CONNECTS, config(False, "host")), servers=1, spares=0) as env:
        await env.init_rollout("a")
        assert await env.run_tool("a", "connect", port=port, kind="SOCK_STREAM") == "connected"


@pytest.mark.parametrize(
    ("server", "said"),
    [
        ({"command": "python", "network": "lan"}, "host or none"),
        ({"url": "http://127.0.0.1:1/mcp", "network": "none"}, "started here"),
    ],
)
def test_what_network_may_say(server: dict[str, Any], said: str) -> None:
    with pytest.raises(EnvDefinitionError, match=said):
        parse_config({"mcpServers": {"it": server}}, "config")


@pytest.mark.parametrize(("written", "meant"), [(False, "none"), ("none", "none"), (True, "host"), (None, "host")])
def test_network_in_words_and_as_yes_or_no(written: Any, meant: str) -> None:
    (spec,) = parse_config({"mcpServers": {"it": {"command": "python", "network": written}}}, "config")
    assert spec.network == meant
