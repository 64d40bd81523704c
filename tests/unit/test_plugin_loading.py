"""Packages that are not what their entry points say: each is an error in words, and everything else works."""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmax import EnvHost, RolloutSettings, load_examples, plugins, run_batch
from benchmax.cli.app import command_of
from benchmax.cli.plugin_commands import failure
from benchmax.doctor import checks as checks_of_the_doctor
from benchmax.doctor import registry
from benchmax.envs.arithmetic.arithmetic_env import ArithmeticEnv
from benchmax.envs.catalogue import environments
from benchmax.envs.loading import load_env_class, usable_environments
from benchmax.errors import PluginError, UsageError
from benchmax.models.registry import open_model
from benchmax.search import open_corpus
from benchmax.trainer.backend import backends, open_backend

BASE = "from benchmax import *\n"


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Make a package with entries and a module, as `pip install` would."""
    monkeypatch.setattr(plugins, "_warned", set())

    def install(package: str, source: str, **entries: str) -> str:
        folder = tmp_path / package
        about = folder / f"{package}-1.0.dist-info"
        about.mkdir(parents=True)
        (folder / f"{package}_module.py").write_text(textwrap.dedent(source))
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        lines = [f"[benchmax.{group}]\n{entry}\n" for group, entry in entries.items()]
        (about / "entry_points.txt").write_text("".join(lines).replace("=", f"={package}_module:"))
        monkeypatch.syspath_prepend(str(folder))
        return str(folder)

    yield install
    usable_environments.__globals__["_loads"].cache_clear()
    for name in [name for name in sys.modules if name.endswith("_module")]:
        del sys.modules[name]


GROUPS = list(plugins.GROUPS)


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("raise RuntimeError('out of order')", "out of order"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("import nothing_of_this_name", "nothing_of_this_name"),
        ("there = 1", "no attribute 'thing'"),
    ],
)
def test_what_cannot_be_imported_is_named_and_skipped(installed, caplog, group, source, why):
    installed("crooked", source, **{group: "bent=thing"})
    with pytest.raises(PluginError, match=rf"'bent' \(crooked_module:thing\) of crooked cannot be loaded: .*{why}.*\."):
        plugins.load(group, "bent")
    with caplog.at_level(logging.WARNING):
        assert [name for name, _ in plugins.load_all(group) if name == "bent"] == []
        list(plugins.load_all(group))
    assert len([each for each in caplog.messages if "crooked" in each]) == 1


@pytest.mark.parametrize("group", [name for name in GROUPS if name != "checks"])
def test_what_is_no_such_thing_is_named(installed, group):
    installed("crooked", "thing = 7", **{group: "bent=thing"})
    with pytest.raises(PluginError, match="of crooked is or returns 7, not a"):
        plugins.load(group, "bent")


@pytest.mark.parametrize("group", ["models", "corpora", "imports"])
@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("async def thing(rest): return None", "an async function, not a plain function"),
        ("def thing(rest): return 7", "returns 7, not "),
        ("def thing(rest): return int", "not "),
        ("def thing(rest): return 1 / 0", "failed for 'bent:x': ZeroDivisionError"),
        ("def thing(rest): raise SystemExit", "failed for 'bent:x': SystemExit"),
        ("def thing(): return None", "failed for 'bent:x': TypeError"),
    ],
)
def test_a_function_that_makes_nothing_of_use_is_named(installed, group, source, why):
    installed("crooked", source, **{group: "bent=thing"})
    opened = {
        "models": lambda: open_model("bent:x", env_class=ArithmeticEnv),
        "corpora": lambda: open_corpus("bent:x"),
        "imports": lambda: load_env_class("bent:x"),
    }
    with pytest.raises(PluginError, match=f"of crooked .*{why}"):
        opened[group]()


def test_an_error_with_advice_is_left_as_it_is(installed):
    installed("careful", "from benchmax.errors import UsageError\ndef thing(rest): raise UsageError('Say x.')")
    installed("second", "from careful_module import thing", models="own=thing")
    with pytest.raises(UsageError, match=r"^Say x\.$"):
        open_model("own:", env_class=ArithmeticEnv)


def test_an_environment_that_is_none_is_skipped(installed, caplog):
    installed("crooked", "class thing: pass", environments="bent=thing")
    with pytest.raises(PluginError, match="not a class that extends BaseEnv"):
        load_env_class("bent")
    assert "bent" not in usable_environments()
    assert "crooked" in caplog.text


@pytest.mark.parametrize(
    ("group", "name", "listed"),
    [("environments", "math", environments), ("trainers", "embedded", backends)],
)
def test_names_of_benchmax_are_not_replaced(installed, caplog, group, name, listed):
    before = listed()
    installed("crooked", "class thing: train = resume = print", **{group: f"{name}=thing"})
    assert listed() == before
    assert f"crooked adds '{name}' to {group}, which is one of benchmax's own. It is left out." in caplog.text


@pytest.mark.parametrize("name", ["a,b", "a:b", "a/b", "a b", "a.py", "--a"])
def test_a_name_that_cannot_be_typed_harms_nobody(installed, caplog, name):
    source = (
        "from benchmax import BaseEnv\nclass thing(BaseEnv):\n    async def compute_reward(self, *a, **k): return 1.0"
    )
    folder = installed("crooked", source, environments="good=thing")
    about = Path(folder, "crooked-1.0.dist-info", "entry_points.txt")
    about.write_text(f"[benchmax.environments]\ngood = crooked_module:thing\n{name} = crooked_module:thing\n")
    assert {"good", "math"} <= set(usable_environments())
    assert name not in plugins.entries("environments")
    assert f"crooked adds {name!r} to environments, which cannot be typed as a name" in caplog.text


def test_of_two_packages_with_one_name_the_user_hears(installed, caplog):
    for package in ("one", "two"):
        installed(package, "def thing(rest): return None", models="same=thing")
    assert list(plugins.entries("models")) == ["same"]
    plugins.entries("models")
    [message] = [each for each in caplog.messages if "'same'" in each]
    assert "Both two and one add" in message
    assert "That of two is used; uninstall one of them." in message


def test_what_a_package_prints_is_no_data(installed, capsys):
    installed("loud", "print('hello')\ndef thing(rest): return None", models="loud=thing")
    plugins.load("models", "loud")
    assert capsys.readouterr() == ("", "hello\n")


# Checks

CHECK = """
from benchmax.doctor.registry import check
@check("{id}", "a title", {need})
def look(evidence):
    {body}
"""


@pytest.fixture
def checks(monkeypatch):
    monkeypatch.setattr(registry, "CHECKS", {})


@pytest.mark.parametrize(
    ("body", "need", "why"),
    [
        ("raise ValueError('odd')", "lambda evidence: None", "failed: ValueError: odd"),
        ("raise SystemExit(2)", "lambda evidence: None", "failed: SystemExit: 2"),
        ("yield 'text'", "lambda evidence: None", "failed: TypeError"),
        ("return None", "lambda evidence: None", "failed: TypeError"),
        ("yield", "lambda evidence: 1 / 0", "failed: ZeroDivisionError"),
        ("yield", "'examples'", "failed: TypeError"),
        ("import time; time.sleep(600); yield", "lambda evidence: None", "did not end within 0.2 s"),
    ],
)
def test_a_check_that_fails_or_hangs_is_skipped_with_a_warning(installed, checks, monkeypatch, caplog, body, need, why):
    monkeypatch.setattr("benchmax.limits.CHECK_SECONDS", 0.2)
    installed("crooked", CHECK.format(id="bent", need=need, body=body), checks="bent=look")
    plugins.load("checks", "bent")
    findings, [line] = registry.run_checks(SimpleNamespace())
    assert (findings, line.state) == ([], "skipped")
    assert line.note.startswith(f"the plug-in's check {why}")
    assert f"The check 'bent' of crooked_module {why}" in caplog.text


def test_a_module_without_a_check_is_named(installed, caplog):
    installed("crooked", "thing = 1", checks="bent=thing")
    importlib.reload(checks_of_the_doctor)
    assert "of crooked registers no check" in caplog.text


def test_a_check_does_not_replace_another(installed, checks):
    registry.check("taken", "ours")(lambda evidence: iter(()))
    installed("crooked", CHECK.format(id="taken", need="lambda evidence: None", body="yield"), checks="bent=look")
    with pytest.raises(PluginError, match="has a check 'taken' already"):
        plugins.load("checks", "bent")
    assert registry.CHECKS["taken"].title == "ours"


# Trainers


@pytest.mark.parametrize(
    ("method", "why"),
    [
        ("raise RuntimeError('lost')", "failed in train: RuntimeError: lost"),
        ("raise SystemExit(4)", "failed in train: SystemExit: 4"),
        ("return None", "returns None, not an Outcome from train"),
        ("return Outcome(Path('nowhere'), 'steps', 1)", "not an Outcome from train whose path holds a run"),
        ("return Outcome('nowhere', 'steps', 1)", "not an Outcome from train whose path holds a run"),
    ],
)
@pytest.mark.parametrize("kind", ["def", "async def"])
def test_a_trainer_that_fails_is_named(installed, kind, method, why):
    head = "from pathlib import Path\nfrom benchmax.trainer.progress import Outcome\n"
    source = f"{head}class Own:\n    {kind} train(self, config, **options): {method}\n    resume = train\nthing = Own()"
    installed("crooked", source, trainers="own=thing")
    with pytest.raises(PluginError, match=f"of crooked .*{why}"):
        asyncio.run(open_backend("own").train(None, on_event=print))


def test_a_trainer_is_an_object_and_no_class(installed):
    installed("crooked", "class thing:\n    def train(self): pass\n    resume = train", trainers="own=thing")
    with pytest.raises(PluginError, match="not an object with the methods train and resume"):
        open_backend("own")
    assert "own" not in backends()


# Models


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        ("None", "The model's reply is None. Return a Reply"),
        ("'text'", "Return a Reply"),
        ("Reply('text')", "Its role must be 'assistant'"),
        ("Reply({'role': 'user', 'content': ''})", "Its role must be 'assistant'"),
        ("Reply({'role': 'assistant', 'content': 3})", "Its content must be text"),
        ("Reply({'role': 'assistant', 'content': '', 'tool_calls': 'x'})", "its tool_calls a list"),
        ("exit(3)", "SystemExit"),
    ],
)
async def test_a_reply_that_is_none_is_the_models_fault(installed, reply, why):
    source = f"""
    from benchmax.models import Conversation, ModelClient, Reply
    class Talk(Conversation):
        async def reply(self, new, **options): return {reply}
    class Own(ModelClient):
        def converse(self, **options): return Talk()
    def thing(rest): return Own()
    """
    installed("crooked", source, models="own=thing")
    examples = list(load_examples([{"question": "2 + 2?", "ground_truth": "4"}], ArithmeticEnv))
    async with EnvHost(ArithmeticEnv) as host:
        [rollout] = await run_batch(host, examples, open_model("own:", env_class=ArithmeticEnv), RolloutSettings())
    assert rollout.termination.value == "model_error"
    assert why in f"{rollout.error.type}: {rollout.error.message}"


# Commands


def run(folder: str, *words: str) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join([folder, *filter(None, [os.environ.get("PYTHONPATH")])])}
    return subprocess.run(
        [sys.executable, "-m", "benchmax", *words], env=variables, capture_output=True, text=True, timeout=60
    )


COMMANDS = """
import typer, typing
group = typer.Typer()
@group.command()
def one(): raise ValueError("out of order")
@group.command()
def two(): print("two")
def fails(): raise RuntimeError("out of order")
async def waits(word: str): print(word)
def odd(word: typing.Annotated[str, typer.Option(), typer.Argument()]): pass
number = 7
"""


def test_commands_run_and_their_failures_are_lines(installed):
    names = ("group", "fails", "waits", "odd", "number")
    folder = installed("crooked", COMMANDS, commands="\n".join(f"x{name}={name}" for name in names))
    assert run(folder, "xwaits", "hello").stdout == "hello\n"
    assert run(folder, "xgroup", "two").stdout == "two\n"
    for words, why in [
        (("xfails",), "failed: RuntimeError: out of order"),
        (("xgroup", "one"), "failed: ValueError: out of order"),
        (("xodd",), "cannot be a command"),
        (("xnumber",), "is or returns 7, not a function"),
    ]:
        done = run(folder, *words)
        assert done.returncode in (1, 2)
        assert "Traceback" not in done.stderr
        assert why in " ".join(done.stderr.split())
        assert "of crooked" in done.stderr
    helped = run(folder, "--help")
    assert helped.returncode == 0
    assert {"xgroup", "xfails", "xwaits"} <= set(helped.stdout.split())
    assert helped.stderr.count("It is skipped") == 2


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["xodd", "7"], "xodd"),
        (["--profile", "xfails", "xodd"], "xodd"),
        (["--profile=xfails", "train", "xodd"], "train"),
        (["--help", "xodd"], "--help"),
        ([], ""),
    ],
)
def test_an_error_is_that_of_the_command_that_runs(installed, words, command):
    installed("crooked", COMMANDS, commands="xodd=odd\nxfails=fails")
    assert command_of(words) == command
    blamed = failure(ValueError("out of order"), command)
    assert ("'xodd'" in str(blamed)) if command == "xodd" else (blamed is None)


def test_only_the_command_that_is_named_is_imported(installed):
    folder = installed("slow", "raise RuntimeError('imported')", commands="xslow=thing")
    done = run(folder, "limits", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)
