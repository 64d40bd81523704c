"""What somebody sees who uses the commands for the first time: a way that works, and advice that is not cut off."""

from __future__ import annotations

import asyncio
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.errors import MarkupError
from typer.testing import CliRunner, Result

from benchmax.cli import output
from benchmax.cli.app import app
from benchmax.cli.local import train as train_command
from benchmax.cli.local.signal_report import signal_in
from benchmax.cli.platform import quickstart, up
from benchmax.cli.progress import live_bar
from benchmax.cli.tables import print_comparison, print_report
from benchmax.doctor.learning_signal import Signal
from benchmax.envs.datasets import load_examples
from benchmax.envs.loading import load_env_class
from benchmax.errors import ConfigError, NotFoundError, UsageError
from benchmax.evaluation.compare import Comparison
from benchmax.evaluation.report import Reason, Report, cut_middle
from benchmax.models.scripted import ScriptedModel
from benchmax.platform.daemon.options import Options
from benchmax.platform.store.datadir import DataDir
from benchmax.rollouts.groups import run_group
from benchmax.rollouts.host import EnvHost
from benchmax.rollouts.record import Rollout
from benchmax.trainer import start, task
from benchmax.trainer.config import load_config
from benchmax.trainer.progress import Outcome

ENV = """
from benchmax import BaseEnv

class Silent(BaseEnv):
    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"right": 0.0}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "silent_env.py").write_text(ENV)
    (tmp_path / "rows.jsonl").write_text("\n".join(json.dumps({"prompt": f"{n}?"}) for n in range(4)))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def signal_of_samples(samples: int) -> Signal:
    """What `eval --group-size SAMPLES` says where nothing was earned."""
    env_class = load_env_class("silent_env.py")
    examples = list(load_examples("rows.jsonl", env_class))

    async def play() -> list[list[Rollout]]:
        async with EnvHost(env_class) as host:
            model, count = ScriptedModel("no"), range(samples)
            return [await run_group(host, example, model, samples=count) for example in examples]

    return signal_in(env_class, {}, examples, asyncio.run(play()))


def test_one_sample_a_prompt_is_not_said_to_be_without_signal(project: Path) -> None:
    alone = signal_of_samples(1)
    assert "had signal" not in alone.forecast
    assert alone.advice == "--group-size 8 measures it."
    assert signal_of_samples(2).forecast == "No group in 4 had signal: GRPO will not move it."


# The command's own name


def installed(folder: Path) -> Path:
    folder.mkdir(parents=True)
    command = folder / "benchmax"
    command.touch(mode=0o755)
    return command


def test_commands_are_named_so_that_the_shell_finds_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own, other = installed(tmp_path / ".venv" / "bin"), installed(tmp_path / "other")
    monkeypatch.setattr(sys, "executable", str(own.with_name("python")))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(own.parent))
    assert output.command() == "benchmax"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert output.command() == ".venv/bin/benchmax"
    monkeypatch.setenv("PATH", str(other.parent))
    assert output.command() == ".venv/bin/benchmax"
    monkeypatch.chdir(other.parent)
    assert output.command() == str(own)


def test_the_quickstart_ends_with_what_comes_next(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quickstart, "command", lambda: ".venv/bin/benchmax")
    found: dict[str, Any] = {"trained": 0.9, "base": 0.1, "examples": 19, "curve": {"train": []}}
    found |= {"delta": 0.8, "low": 0.7, "high": 0.9}
    quickstart._print_outcome(
        found, "http://h/experiments/r", "http://h/login?token=t&next=/experiments/r", Path("reward.png")
    )
    said = capsys.readouterr().err
    assert "Sign in to the console, once, with http://h/login?token=t&next=/experiments/r" in said
    assert "Stop it with: .venv/bin/benchmax down" in said
    assert ".venv/bin/benchmax train main.py --data rows.jsonl" in said


def test_the_quickstart_gives_a_link_to_sign_in_at_the_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    class Client:
        url = "http://h/experiments/r"

        def __enter__(self) -> Client:
            return self

        def __exit__(self, *error: object) -> None: ...

        def run(self, run_id: str) -> Client:
            return self

    class Ended(Exception): ...

    def follow(client: Client, run_id: str) -> None:
        raise Ended

    monkeypatch.setattr(quickstart, "platform", Client)
    monkeypatch.setattr(quickstart, "launch", lambda *given: "r")
    monkeypatch.setattr(quickstart, "_link", lambda client, url: "http://h/login?token=t&next=/experiments/r")
    monkeypatch.setattr(quickstart, "_follow", follow)
    done = call("quickstart")
    assert isinstance(done.exception, Ended)
    assert "with http://h/login?token=t&next=/experiments/r" in done.stderr


# Failures of an evaluation


def test_the_end_of_a_message_is_kept() -> None:
    cut = cut_middle("No answer from " + "x" * 300 + ". Check that the server is up.", 100)
    assert len(cut) == 100
    assert cut.startswith("No answer from x")
    assert cut.endswith(". Check that the server is up.")
    assert cut_middle("short", 100) == "short"


def test_an_error_is_listed_once(capsys: pytest.CaptureFixture[str]) -> None:
    report = Report(unscored={"reward": 3}, errors={"OSError": 3})
    report.unscored_reasons = {"reward": Reason("OSError: judge away. Start it.", 3)}
    report.error_reasons = {"OSError": Reason("judge away. Start it.", 3)}
    print_report(report, Path("runs"))
    shown = capsys.readouterr().out
    assert shown.count("judge away") == shown.count("OSError") == 1
    assert "OSError: 3 × judge away. Start it." in shown


def test_tables_are_not_folded_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path("runs") / ("x" * 120)
    print_report(Report(errors={"OSError": 1}, error_reasons={"OSError": Reason("y" * 120, 1)}), folder)
    shown = capsys.readouterr().out
    assert str(folder) in shown
    assert "y" * 120 in shown
    print_comparison(Comparison([], verdict="z " * 60), 0)
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_a_model_called_x_is_no_emoji(capsys: pytest.CaptureFixture[str]) -> None:
    output.stderr.print("scripted:x: 3/3")
    assert capsys.readouterr().err == "scripted:x: 3/3\n"


def test_progress_in_a_pipe_is_a_line_now_and_then_and_one_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    with live_bar("a[b]c") as update:
        for done in (1, 2, 3):
            update(done, 3, f"{done}/3")
    assert capsys.readouterr().err == "a[b]c: 3/3\n"


# env show


def test_what_env_show_found_is_on_stdout_with_parameters_and_a_row() -> None:
    shown = call("env", "show", "math").stdout
    assert "  calculate(expression: string)\n" in shown
    assert '{"question": ' in shown
    found = json.loads(call("env", "show", "math", "--json").stdout)
    assert found["parameters"] == {"calculate": {"expression": "string"}}
    assert "question" in found["row"]


def test_an_environment_without_rows_is_shown_too(project: Path) -> None:
    shown = call("env", "show", "silent_env.py")
    assert shown.exit_code == 0
    assert "tools: none\nrows: give some with --data\n" in shown.stdout


# Names that are not there


def test_a_model_that_is_not_here_may_be_on_a_server(project: Path) -> None:
    done = call("eval", "silent_env.py", "--data", "rows.jsonl", "--model", "gpt-4o")
    assert isinstance(done.exception, NotFoundError)
    assert "--base-url" in str(done.exception)


def test_a_model_that_nobody_named_is_said_to_be_the_default(project: Path) -> None:
    done = call("eval", "silent_env.py", "--data", "rows.jsonl")
    assert isinstance(done.exception, UsageError)
    assert "scripted:gold, the model when no --model is given" in str(done.exception)


def test_a_setting_is_guessed_by_its_own_name() -> None:
    with pytest.raises(ConfigError, match=r"did you mean limits\.steps\?"):
        load_config(None, ["--step", "3"])


def test_a_model_with_brackets_in_its_name_may_try(project: Path):
    done = call("validate", "silent_env.py", "--data", "rows.jsonl", "--model", "scripted:[/b]", "--pace", "quick")
    assert not isinstance(done.exception, MarkupError), done.exception
    assert "learn it?" in done.output


def test_the_advice_to_install_an_extra_keeps_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    shown = io.StringIO()
    monkeypatch.setattr(up, "stderr", Console(file=shown, soft_wrap=True))
    monkeypatch.setattr(up.extras, "missing", lambda extra: ["torch"])
    monkeypatch.setattr(up.control, "sign_in_link", lambda options: "http://127.0.0.1:1/")
    up._welcome(Options(DataDir(tmp_path)), "Ctrl-C stops it.")
    assert "[train]" in shown.getvalue()


def test_a_run_may_end_without_a_step_for_a_reason_of_its_own_backend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    async def train(*_: object, **__: object) -> Outcome:
        return Outcome(tmp_path, "quota", 0)

    monkeypatch.setattr(start, "train", train)
    monkeypatch.setattr(task, "load_task", lambda settings: None)
    monkeypatch.setattr(train_command, "_show_what_was_learned", lambda outcome: None)
    train_command._run(load_config(None, []))
    assert "(quota) before the first step" in capsys.readouterr().err
