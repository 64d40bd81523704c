"""What a workdir may look like, and what is said when it does not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmax.envs.mcp.agent.auth import _is_own_host
from benchmax.envs.mcp.agent.reward_worker import load_rewards, score
from benchmax.envs.mcp.agent.server_launcher import _resolved
from benchmax.envs.mcp.client.content import as_tool_result
from benchmax.envs.mcp.client.reward_client import CallResult, TextContent
from benchmax.envs.mcp.client.tool_schemas import valid_schema
from benchmax.envs.mcp.env import ParallelMcpEnv
from benchmax.envs.mcp.fork.preload import _imports_of, split_command
from benchmax.envs.mcp.fork.python_program import PythonProgram, python_program
from benchmax.envs.mcp.fork.read_rules import _without
from benchmax.envs.mcp.packed_workdir import ignored_names
from benchmax.envs.mcp.provisioners import LocalProvisioner, ManualProvisioner
from benchmax.envs.mcp.server_config import ServerSpec, memory_bytes, parse_config
from benchmax.envs.mcp.workdir import check_workdir, read_workdir, write_workdir
from benchmax.errors import EnvDefinitionError
from mcp_world import make_workdir


@pytest.mark.parametrize("name", ["mcp_config.yaml", "reward_fn.py", "setup.sh"])
def test_each_of_the_three_files_is_required(tmp_path: Path, name: str) -> None:
    workdir = make_workdir(tmp_path)
    (workdir / name).unlink()
    with pytest.raises(FileNotFoundError, match=name):
        ParallelMcpEnv(workdir, ManualProvisioner(["127.0.0.1:1"]), provision_at_init=False)


def test_yml_is_as_good_as_yaml(tmp_path: Path) -> None:
    workdir = make_workdir(tmp_path)
    (workdir / "mcp_config.yaml").rename(workdir / "mcp_config.yml")
    assert check_workdir(workdir) == workdir
    assert [spec.name for spec in read_workdir(workdir).servers] == ["probe"]


def test_holes_are_filled(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = {
        "command": "python",
        "args": ["${{ sync_workdir }}/s.py", "--dir=${{workspace}}", 8, True],
        "env": {"KEY": "pre-${MY_KEY}", "N": 3},
        "url": "http://127.0.0.1:${{ port }}/mcp",
    }
    (spec,) = parse_config({"mcpServers": {"a": raw}}, "config")
    filled = spec.filled({"sync_workdir": "/w", "port": "81"}).with_variables({"MY_KEY": "k"})
    assert filled.args == ("/w/s.py", "--dir=${{workspace}}", "8", "true")
    assert filled.env == {"KEY": "pre-k", "N": "3"}
    assert filled.url == "http://127.0.0.1:81/mcp"
    with pytest.raises(EnvDefinitionError, match=r"MY_KEY.*not set"):
        spec.with_variables({})


def test_a_url_may_be_a_variable_and_is_checked_when_it_is_known() -> None:
    (spec,) = parse_config({"mcpServers": {"a": {"url": "${BASE}/mcp"}}}, "config")
    assert spec.with_variables({"BASE": "https://h"}).url == "https://h/mcp"
    with pytest.raises(EnvDefinitionError, match=r"'h/mcp' does not begin with http://"):
        spec.with_variables({"BASE": "h"})


def test_a_command_with_its_arguments_is_refused_with_advice(tmp_path: Path) -> None:
    spec = ServerSpec("a", "python server.py")
    with pytest.raises(EnvDefinitionError, match="arguments into args"):
        _resolved(spec, tmp_path, os.environ["PATH"])


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (None, "mcpServers"),
        ({"servers": {}}, "mcpServers"),
        ({"mcpServers": {}}, "mcpServers"),
        ({"mcpServers": {"a": None}}, "mapping"),
        ({"mcpServers": {"a b": {"command": "x"}}}, "name"),
        ({"mcpServers": {"a": {"args": ["x"]}}}, "command to run or a url"),
        ({"mcpServers": {"a": {"command": "x", "arg": ["x"]}}}, "Did you mean 'args'"),
        ({"mcpServers": {"a": {"command": "x", "args": "x y"}}}, "list of texts"),
        ({"mcpServers": {"a": {"command": "x", "env": ["A=1"]}}}, "map names"),
        ({"mcpServers": {"a": {"command": "x", "args": ["${{ workdir }}"]}}}, "sync_workdir"),
        ({"mcpServers": {"a": {"url": "ftp://x"}}}, "http://"),
        ({"mcpServers": {"a": {"command": "x\0"}}}, "NUL"),
        ({"mcpServers": {"a": {"command": "x", "start_seconds": -1}}}, "start_seconds"),
        ({"mcpServers": {"a": {"command": "x", "disabled": True}}}, "disabled"),
        ({"mcpServers": {"a": {"command": "x", "fork": "false"}}}, "true or false"),
        ({"mcpServers": {"a": {"command": "x", "args": ["${{ port }}"]}}}, "no url"),
        ({"mcpServers": {"a": {"command": "x", "memory": 512}}}, "512MB"),
        ({"mcpServers": {"a": {"command": "x", "memory": "0MB"}}}, "its unit"),
        ({"mcpServers": {"a": {"url": "http://x/mcp", "memory": "1GB"}}}, "started here"),
        ({"mcpServers": {"a": {"command": "x", "network": ["none"]}}}, "host or none"),
        ({"mcpServers": {"a": {"url": "http://x/mcp", "network": False}}}, "started here"),
        ({"mcpServers": {"a": {"command": "x", "env": {"A=B": "1"}}}}, "no name of a variable"),
    ],
)
def test_a_wrong_configuration_is_told(config: object, said: str) -> None:
    with pytest.raises(EnvDefinitionError, match=said):
        parse_config(config, "mcp_config.yaml")


def test_yaml_that_is_none_names_the_line(tmp_path: Path) -> None:
    workdir = make_workdir(tmp_path, config="mcpServers:\n  a: [\n")
    with pytest.raises(EnvDefinitionError, match=r"mcp_config.yaml, line 3"):
        read_workdir(workdir)


def test_servers_given_in_code_become_a_workdir(tmp_path: Path) -> None:
    write_workdir(tmp_path, {"a": {"command": "x", "args": ["1"]}, "b": {"url": "http://h/mcp", "headers": {"K": "v"}}})
    first, second = read_workdir(tmp_path).servers
    assert (first.command, first.args, first.fork) == ("x", ("1",), True)
    assert (second.url, second.headers) == ("http://h/mcp", {"K": "v"})


def test_what_is_said_in_code_is_kept(tmp_path: Path) -> None:
    write_workdir(tmp_path, {"a": {"command": "x", "start_seconds": 1, "fork": False, "memory": "1.5 GB"}})
    (spec,) = read_workdir(tmp_path).servers
    assert (spec.start_seconds, spec.fork, spec.memory) == (1.0, False, "1.5 GB")
    assert [memory_bytes(each) for each in ("1.5 GB", "512m", "2KiB")] == [3 << 29, 512 << 20, 2048]


def test_pipes_and_caches_do_not_travel(tmp_path: Path) -> None:
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "console").mkdir()
    (tmp_path / "link").symlink_to("nowhere")
    os.mkfifo(tmp_path / "pipe")
    assert ignored_names(str(tmp_path), os.listdir(tmp_path)) == {"__pycache__", "pipe"}


def test_a_link_opens_nothing_that_is_closed(tmp_path: Path) -> None:
    for name in ("open", "shut/inner", "plain"):
        (tmp_path / name).mkdir(parents=True)
    closed = {tmp_path / "open" / "private", tmp_path / "shut"}
    (tmp_path / "open" / "private").write_text("x")
    for number, target in enumerate(("open/private", "shut", "shut/inner", ".", "plain")):
        (tmp_path / f"link{number}").symlink_to(target)
    assert set(_without(tmp_path, closed)) == {tmp_path / "plain"}


async def test_one_wrong_reward_costs_no_other() -> None:
    class Pair:
        def item(self) -> float:
            raise ValueError("two numbers")

    wrong = {"huge": lambda: 10**400, "pair": Pair, "ends": lambda: sys.exit(3), "fine": lambda: 2}
    scored = await score(wrong, {"completion": ""})
    assert "not a finite number" in scored["huge"]["unscored"]
    assert [scored[name]["error"]["type"] for name in ("pair", "ends")] == ["ValueError", "SystemExit"]
    assert scored["fine"] == {"value": 2.0}


def test_a_file_without_rewards_is_told(tmp_path: Path) -> None:
    (tmp_path / "reward_fn.py").write_text("reward_functions = {}")
    with pytest.raises(ValueError, match="is empty"):
        load_rewards(tmp_path / "reward_fn.py")


def test_an_empty_setup_is_not_run(tmp_path: Path) -> None:
    workdir = make_workdir(tmp_path)
    assert read_workdir(workdir).setup_script is None
    (workdir / "setup.sh").write_text("#!/bin/bash\nset -e\n\npip install x\n")
    assert read_workdir(workdir).setup_script == workdir / "setup.sh"


def test_provisioners_check_what_they_are_given(tmp_path: Path) -> None:
    workdir = make_workdir(tmp_path)
    with pytest.raises(ValueError, match="at least one address"):
        ManualProvisioner([])
    with pytest.raises(ValueError, match=r"is a URL\. Give host:port"):
        ManualProvisioner(["10.0.0.5:8080", "http://10.0.0.6:8080"])
    assert ManualProvisioner("10.0.0.5:8080").num_servers == 1
    for wrong in ({"num_servers": 0}, {"spares": -1}, {"base_port": 80}, {"base_port": 65535, "num_servers": 2}):
        with pytest.raises(ValueError, match=r"Give more|Choose another"):
            LocalProvisioner(workdir, **wrong)
    with pytest.raises(FileNotFoundError, match="mcp_config"):
        LocalProvisioner(tmp_path.parent)
    with pytest.raises(FileNotFoundError, match="no folder"):
        LocalProvisioner(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="512MB"):
        LocalProvisioner(workdir, server_memory="lots")
    assert LocalProvisioner(workdir, 7).num_servers == 7


def test_which_commands_can_be_forked(tmp_path: Path) -> None:
    assert split_command(["-u", "server.py", "x"]) == ("script", "server.py", ["x"])
    assert split_command(["-m", "mcp_server_time", "--tz"]) == ("module", "mcp_server_time", ["--tz"])
    assert split_command(["-c", "pass"]) is None
    assert split_command([]) is None
    path = str(Path(sys.executable).parent)
    found = python_program("python", ["s.py"], path)
    assert found == PythonProgram("script", "s.py", interpreter=f"{path}/python")
    script = tmp_path / "mcp-server"
    script.write_text(f"#!{sys.executable}\nprint(1)\n")
    script.chmod(0o755)
    assert python_program("mcp-server", ["a"], str(tmp_path)) == PythonProgram(
        "script", str(script), ("a",), interpreter=sys.executable
    )
    assert python_program("sh", ["s.py"], "/bin") is None
    assert python_program("pythonic", ["s.py"], path) is None


def test_what_is_imported_beforehand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "server.py").write_text(
        "import json, beside\nfrom inner.part import x\ntry:\n    import fast\nexcept ImportError:\n    pass\n"
        "def f():\n    import late\n"
    )
    (tmp_path / "beside.py").write_text("from collections import abc\n")
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "part.py").write_text("import decimal\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = _imports_of("script", str(tmp_path / "server.py"), ())
    assert {"json", "fast", "collections", "decimal"} <= set(found)
    assert not {"beside", "late", "inner.part"} & set(found)


def test_nothing_that_is_not_text_is_lost() -> None:
    raw = {
        "content": [
            {"type": "text", "text": "a"},
            {"type": "image", "data": "AAAA", "mimeType": "image/jpeg"},
            {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"},
            {"type": "resource_link", "name": "n", "uri": "file:///x"},
            {"type": "resource", "resource": {"uri": "u", "blob": "AAAA", "mimeType": "application/zip"}},
            {"type": "hologram"},
        ],
        "isError": True,
    }
    result = as_tool_result(raw)
    assert result.is_error
    assert result.parts == ({"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,AAAA"}},)
    for word in ("a\n", "audio/wav", "file:///x", "application/zip", "hologram"):
        assert word in result.text
    assert as_tool_result({"structuredContent": {"x": 1}}).text == '{"x": 1}'
    picture = {"uri": "chart://1", "mimeType": "image/jpeg", "blob": "AAAA"}
    assert as_tool_result({"content": [{"type": "resource", "resource": picture}]}).parts == result.parts


@pytest.mark.parametrize(
    "raw",
    [{"content": "said"}, {"content": ["said"]}, {"content": {"type": "text", "text": "said"}}, {"toolResult": "said"}],
)
def test_content_that_is_no_list_of_items_is_shown(raw: dict[str, Any]) -> None:
    assert as_tool_result(raw).text == CallResult.of(raw).text == "said"


def test_a_failure_without_words_says_so() -> None:
    assert as_tool_result({"content": [], "isError": True}).text == "The tool failed and gave no reason."


@pytest.mark.parametrize(
    ("schema", "kept"),
    [
        ({"type": "object", "properties": None, "required": None}, {"type": "object"}),
        ({"type": "object", "properties": []}, {"type": "object"}),
        ({"properties": {"x": {"type": "any", "minimum": 1}}}, {"properties": {"x": {"minimum": 1}}}),
        ({"properties": {"x": {"type": "string", "required": True}}}, {"properties": {"x": {"type": "string"}}}),
        ({"properties": {"x": None}, "required": ["x", 5]}, {"properties": {"x": {}}, "required": ["x"]}),
        ({"enum": [None], "anyOf": [None]}, {"enum": [None]}),
        ({"$schema": 4, "enum": [None]}, {"enum": [None]}),
        ({"$schema": "http://json-schema.org/draft-04/schema#", "minimum": 0, "exclusiveMinimum": True},) * 2,
        ({"type": "string", "pattern": r"^\p{L}+$"},) * 2,
        (True, None),
        (None, None),
    ],
)
def test_what_is_no_schema_is_left_out_of_a_tools(schema: Any, kept: Any) -> None:
    found, faults = valid_schema(schema)
    assert found == kept
    assert bool(faults) is (isinstance(schema, dict) and "$schema" not in schema and schema != kept)


def test_a_result_as_rewards_see_it() -> None:
    result = CallResult.of({"content": [{"type": "text", "text": "3"}], "structuredContent": {"result": 3}})
    assert (result.text, result.data, result.is_error) == ("3", 3, False)
    assert result.content == (TextContent("3"),)
    assert CallResult.of({"structuredContent": {"a": 1, "b": 2}}).data == {"a": 1, "b": 2}


@pytest.mark.parametrize(
    ("host", "trusted"),
    [("127.0.0.1:80", True), ("[::1]:80", True), ("localhost", True), ("10.0.0.3:1", True), ("node-7:80", True),
     ("evil.test", False), ("127.0.0.1.evil.test", False), ("[::1]x", False), ("127.1", False), ("", False)],
)  # fmt: skip
def test_hosts(host: str, trusted: bool) -> None:
    assert _is_own_host(host, {"localhost", "node-7"}) is trusted


def test_importing_it_brings_neither_mcp_nor_yaml() -> None:
    code = "import benchmax.envs.mcp, sys; print([m for m in ('mcp', 'yaml', 'torch', 'openai') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
