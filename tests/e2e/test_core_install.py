"""After `pip install .` every command runs, or says in one line which extra to install."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from benchmax import extras
from benchmax.cli.app import app
from core_world import PROJECT, ROOT, core_python, distributions, modules
from forked_commands import ForkedCommands
from platform_world import LiveServer

pytestmark = pytest.mark.timeout(600)  # a hundred processes, on machines that do other things too

FREE: str | None = None
CASES: dict[str, list[tuple[str, str | None]]] = {
    "validate": [
        ("arithmetic", FREE), ("arithmetic --model smollm2-135m", "train"), ("arithmetic --remote", "platform"),
        ("arithmetic --model scripted:gold", FREE), ("arithmetic --model m --base-url http://127.0.0.1:9/v1", FREE),
    ],
    "eval": [
        ("arithmetic -n 2", FREE), ("arithmetic --model smollm2-135m", "train"), ("arithmetic --model runs/r", "train"),
        ("main.py --data hf:a/b", "data"), ("main.py --data rows.parquet", "data"),
    ],
    "env list": [("", FREE)],
    "env show": [("arithmetic", FREE)],
    "env run": [("arithmetic -n 2", FREE)],
    "compare": [("gold gold", FREE)],
    "replay": [("gold", FREE)],
    "show": [("gold", FREE)],
    "train": [("arithmetic --steps 1", "train"), ("--settings", FREE), ("--resume runs/r", "train")],
    "export": [("runs/r out", "train")],
    "plot": [("runs/r", "train")],
    "models pull": [("smollm2-135m", "train")],
    "models add": [("mine model", "train")],
    "models list": [("", FREE)],
    "models rm": [("smollm2-135m", FREE)],
    "models path": [("smollm2-135m", FREE)],
    "models audit": [("model", "train")],
    "serve": [("smollm2-135m", "train"), ("runs/r", "train")],
    "up": [("", "platform"), ("--foreground", "platform")],
    "down": [("", FREE)],
    "status": [("", FREE)],
    "logs": [("", FREE)],
    "reindex": [("", "platform")],
    "backup": [("backup.tar", FREE)],
    "login": [("", "platform"), ("--url http://127.0.0.1:9", FREE)],
    "logout": [("", FREE)],
    "whoami": [("", "platform"), ("--url http://127.0.0.1:9", FREE)],
    "launch": [("arithmetic", "platform"), ("--list-args", "platform")],
    "quickstart": [("", "train,platform")],
    "setup": [("--dir project", FREE)],
    "guide": [("", FREE)],
    "help": [("", FREE)],
    "doctor": [("", FREE), ("--trainers", FREE)],
    "stop": [("run_1", "platform")],
    "resume": [("run_1", "platform")],
    "playground": [("run_1", "platform")],
    "runs watch": [("run_1", "platform")],
    "runs compare": [("run_1", "platform")],
    "runs list": [("", "platform")],
    "runs get": [("run_1", "platform")],
    "runs status": [("run_1", "platform")],
    "runs scalars": [("run_1", "platform")],
    "runs logs": [("run_1", "platform")],
    "runs rollouts": [("run_1", "platform")],
    "runs rollout": [("run_1 1", "platform")],
    "runs export": [("run_1 out", "platform")],
    "runs fork": [("run_1", "platform")],
    "keys list": [("", "platform")],
    "keys create": [("", "platform")],
    "keys revoke": [("1", "platform")],
    "endpoints list": [("", "platform")],
    "endpoints add": [("a http://127.0.0.1:9/v1 m", "platform")],
    "endpoints rm": [("1", "platform")],
    "secrets list": [("", "platform")],
    "secrets set": [("A", FREE)],
    "secrets rm": [("A", "platform")],
    "webhooks list": [("", "platform")],
    "webhooks add": [("http://127.0.0.1:9/hook", "platform")],
    "webhooks rm": [("1", "platform")],
    "webhooks test": [("1", "platform")],
    "webhooks log": [("1", "platform")],
    "profile list": [("", FREE)],
    "profile current": [("", FREE)],
    "profile add": [("a --url http://127.0.0.1:9", FREE)],
    "profile activate": [("b", FREE)],
    "data view": [("rows.csv", FREE), ("rows.parquet", "data")],
    "data upload": [("rows.csv", "platform")],
    "mcp inspect": [("servers", "mcp")],
    "mcp run": [("servers tool", "mcp")],
    "mcp bench": [("servers", "mcp")],
    "mcp setup": [("servers", "mcp")],
    "wikipedia index": [("texts --out texts.sqlite", FREE)],
    "wikipedia fetch": [("missing.tgz", FREE)],
    "limits": [("", FREE)],
}  # fmt: skip
"""By command: arguments, and the extra that they need."""

ENV = """
from benchmax.envs.base_env import BaseEnv

class Plain(BaseEnv):
    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"correct": 1.0}
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return core_python(tmp_path_factory.mktemp("core") / "venv")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What the arguments name."""
    files = {
        "main.py": ENV,
        "rows.csv": "prompt,ground_truth\n" + "a,b\n" * 20,
        "rows.parquet": "",
        "texts/cats.md": "# Cats\n\nCats purr.",
        "servers/mcp_config.yaml": "mcpServers: {one: {command: python}}",
        "servers/reward_fn.py": "",
        "servers/setup.sh": "",
        "runs/r/run.json": "{}",
        "runs/r/metrics.jsonl": '{"split": "train", "step": 0, "values": {"reward/mean": 1.0}}\n',
        "model/config.json": '{"model_type": "llama"}',
        "model/model.safetensors": "",
        "model/tokenizer.json": "{}",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def run(python: Path, folder: Path, commands: list[str], **variables: str) -> list[tuple[int, str, str]]:
    """Exit code, stdout and stderr of each."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("BENCHMAX_", "CASTFORM_"))}
    clean |= {"HOME": str(folder / "home"), **variables}
    with ForkedCommands(python, clean) as forked:
        done = [forked.run(command.split(), folder) for command in commands]
    return [(each.returncode, each.stdout, each.stderr) for each in done]


def leaves(command: object, words: tuple[str, ...] = ()) -> Iterator[str]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield " ".join(words)
    for name, each in (inner or {}).items():
        yield from leaves(each, (*words, name))


def test_every_command_has_a_case() -> None:
    assert set(CASES) == set(leaves(typer.main.get_command(app)))


OFTEN = (
    "validate", "eval", "env list", "train", "models pull", "serve", "up", "login", "launch", "quickstart", "setup",
    "doctor", "runs list", "data view", "mcp inspect",
)  # fmt: skip
"""Commands of every room, and every extra."""


@pytest.mark.parametrize("names", [OFTEN, pytest.param(tuple(CASES), marks=pytest.mark.slow)], ids=["often", "all"])
def test_every_command_runs_or_names_its_extra(python: Path, folder: Path, names: tuple[str, ...]) -> None:
    wanted = [(f"{name} {words}".strip(), extra) for name in names for words, extra in CASES[name]]
    assert {extra for _, extra in wanted} == {extra for cases in CASES.values() for _, extra in cases}
    before = ["eval arithmetic -n 2 --out gold"]
    results = run(python, folder, before + [command for command, _ in wanted])[1:]
    for (command, extra), (code, _, err) in zip(wanted, results, strict=True):
        assert "Traceback" not in err, f"{command}\n{err}"
        if extra is FREE:
            assert "pip install" not in err or command == "doctor", f"{command}\n{err}"
            continue
        assert code == 2, f"{command}\n{err}"
        (line,) = (each for each in err.splitlines() if each.startswith("error"))
        assert f"pip install 'benchmax[{extra}]'" in line, f"{command}\n{err}"
    assert not (folder / "home" / ".benchmax" / "logs").exists(), "nothing was started that could not run"


def test_a_platform_elsewhere_needs_no_extra(python: Path, folder: Path) -> None:
    with LiveServer(folder / "there") as server:
        commands = [
            "whoami", "launch arithmetic --set model=smollm2-135m", "runs list", "data upload rows.csv", "keys list",
            "endpoints list", "secrets list", "webhooks list", "launch --list-args",
        ]  # fmt: skip
        settings = {"CASTFORM_PLATFORM_URL": server.url, "CASTFORM_API_KEY": server.user()[1]}
        results = run(python, folder, commands, **settings)
    for command, (code, _, err) in zip(commands, results, strict=True):
        assert code == 0, f"{command}\n{err}"


# The table


def imported() -> set[str]:
    """Packages that benchmax imports anywhere, those of a type checker left out."""
    found = set()
    for file in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module]
            found |= {name.partition(".")[0] for name in names}
    return found - set(sys.stdlib_module_names) - {"benchmax", "_typeshed"}


def test_the_table_of_extras_has_every_package() -> None:
    core = modules(distributions(PROJECT["dependencies"]).values())
    known = {module for each in extras.MODULES.values() for module in each}
    say_so_themselves = {"ray", "sky", "triton", "trl", "skyrl", "skyrl_gym", "tinker", "tinker_cookbook", "chz"}
    say_so_themselves |= {"verifiers", "openenv", "omegaconf", "verl"}
    say_so_themselves |= {"com", "uno"}  # LibreOffice's own, inside of it
    assert imported() - core - say_so_themselves <= known
    assert not known & core
    for extra, names in extras.MODULES.items():
        assert set(names) <= modules(distributions(PROJECT["optional-dependencies"][extra]).values()), extra
