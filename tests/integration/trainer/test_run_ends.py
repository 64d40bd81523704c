"""What a run says of itself at its start and after its end: small steps, what ended it, a full disk, its model card."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import typer
from transformers import AutoTokenizer
from typer.testing import CliRunner

from benchmax.cli.local import train as commands
from benchmax.envs.base_env import BaseEnv
from benchmax.envs.example_id import make_example
from benchmax.files import logs
from benchmax.files.atomic import write_text
from benchmax.trainer import start
from benchmax.trainer.checkpoint import choose_checkpoint
from benchmax.trainer.config import build_config
from benchmax.trainer.export import export_merged, model_card
from benchmax.trainer.rundir import RunDir, read_metrics, read_status
from benchmax.trainer.tiny_model import make_tiny

torch.set_num_threads(1)  # the models are tiny

SMALL = ["--rollouts.max_new_tokens", "4", "--rollouts.group_size", "2", "--eval.rows", "2", "--output.name", "x",
         "--model.tune", "full", "--recipe", "plain", "--rollouts.max_extra_groups", "0"]  # fmt: skip


class LengthEnv(BaseEnv):
    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"length": float(len(str(messages)) % 5)}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_tiny(tmp_path_factory.mktemp("model"), hidden=32, layers=2)


def settings(model, folder, **tree):
    return build_config({
        "model": {"name": str(model), "tune": "full", "device": "cpu"},
        "rollouts": {"prompts_per_step": 4, "group_size": 2, "max_new_tokens": 4, "max_extra_groups": 0},
        "limits": {"steps": 1},
        "output": {"dir": str(folder), "name": "run"},
        **tree,
    })  # fmt: skip


def examples(count):
    return [make_example(prompt_messages=[{"role": "user", "content": f"{i}?"}]) for i in range(count)]


def train(model, folder, rows=16, **tree):
    task = start.Task(LengthEnv, examples(rows), [])
    return asyncio.run(start.train(settings(model, folder, **tree), task=task)).path


def events(path, kind):
    lines = map(json.loads, (path / "events.jsonl").read_text().splitlines())
    return [line for line in lines if line["kind"] == kind]


def notes(path):
    return [event["message"] for event in events(path, "note")]


def test_a_step_that_asks_for_more_prompts_than_there_are_rows_is_told(model, tmp_path):
    rollouts = {"prompts_per_step": 64, "group_size": 2, "max_new_tokens": 4, "max_extra_groups": 0}
    path = train(model, tmp_path / "a", rollouts=rollouts)
    assert notes(path) == ["rollouts.prompts_per_step is 64, but there are 16 different rows: a step takes 16."]
    assert read_metrics(path)[0]["values"]["groups"] == 16
    assert notes(train(model, tmp_path / "b")) == []


@pytest.fixture
def shell(model, tmp_path, monkeypatch):
    """The command line, in a folder with rows."""
    app = typer.Typer()
    app.command("train", context_settings=commands.CONTEXT)(commands.train)
    app.command("other")(commands.plot)
    rows = [json.dumps({"question": f"{i} + 1?", "ground_truth": str(i + 1)}) for i in range(24)]
    (tmp_path / "rows.jsonl").write_text("\n".join(rows) + "\n")
    monkeypatch.chdir(tmp_path)

    def invoke(*flags: str) -> str:
        begins = flags[0] != "--resume"
        first = ["arithmetic", "--data", "rows.jsonl", "--model", str(model), *SMALL] if begins else []
        result = CliRunner().invoke(app, ["train", *first, *flags], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return " ".join(result.output.split())

    return invoke


@pytest.mark.parametrize(
    ("setting", "value", "hint"),
    [("limits.seconds", "0.001", r"\d+"), ("eval.target", "0", "none"), ("eval.patience", "1", "2")],
)
def test_a_run_that_ended_early_names_the_setting_that_ended_it(shell, setting, value, hint):
    shell("--steps", "3", "--eval.every", "1", "--optim.lr", "1e-9", f"--{setting}", value)
    for given in ([], ["--steps", "30"], [f"--{setting}", value])[: 3 if setting == "limits.seconds" else 1]:
        said = shell("--resume", "runs/x", *given)
        assert f"{setting} ({float(value):g}) ended it, so there is nothing to do" in said
        assert re.search(rf"benchmax train --resume runs/x --{setting} {hint}$", said)
    assert "ended after 3 steps (steps)" in shell("--resume", "runs/x", f"--{setting}", "none")
    assert "limits.steps (3) ended it" in shell("--resume", "runs/x", "--steps", "2")


def test_the_time_offered_is_more_than_was_needed(shell):
    shell("--steps", "3", "--limits.seconds", "0.001")
    offered = float(shell("--resume", "runs/x").rpartition(" ")[2])
    (ended,) = events(Path("runs/x"), "ended")
    assert offered >= 2 * ended["seconds"]


def test_a_log_on_a_full_disk_is_no_error_of_its_own(capsys):
    with logs.log_file(Path("/dev/full")):
        logging.getLogger("benchmax.trainer").error("could not be %s", "written")
    assert "Logging error" not in capsys.readouterr().err
    handler = logs.LogFile("/dev/null")
    handler.emit(logging.makeLogRecord({"msg": "a mistake in the call: %d", "args": ("text",)}))
    handler.close()
    assert "Logging error" in capsys.readouterr().err, "what is wrong with a line is still told"


TALKATIVE = """
from benchmax.envs.arithmetic import ArithmeticEnv

class Talkative(ArithmeticEnv):
    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        print("scoring", rollout_id, flush=True)
        return await super().compute_reward(rollout_id, messages, task, **kwargs)
"""


def command(model, folder):
    (folder / "talkative.py").write_text(TALKATIVE)
    code = "import torch; torch.set_num_threads(1); from benchmax.cli import main; main()"
    return [sys.executable, "-c", code, "train", "talkative.py", "--model", str(model), "--steps", "1", *SMALL]


@pytest.mark.parametrize("both", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["2>&1", "stdout"])
def test_a_run_goes_on_when_nobody_reads_what_it_prints(model, tmp_path, both):
    with open(tmp_path / "err", "w+") as err:
        running = subprocess.Popen(
            command(model, tmp_path), cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT if both else err
        )
        assert running.stdout.readline().startswith(b"training" if both else b"scoring")
        running.stdout.close()
        assert running.wait(120) == 0
    assert (tmp_path / "err").read_text().splitlines()[-1:] == ([] if both else ["Done: runs/x"])
    assert read_status(tmp_path / "runs" / "x")["state"] == "complete"
    values = [line["values"] for line in read_metrics(tmp_path / "runs" / "x")]
    assert [line.get("unscored", 0) for line in values] == [0] * len(values), "what the environment prints is lost too"


def test_a_run_needs_no_stderr(model, tmp_path):
    closing = ["/bin/sh", "-c", '"$@" 2>&-', "sh", *command(model, tmp_path)]
    done = subprocess.run(closing, cwd=tmp_path, stdout=subprocess.PIPE, timeout=120)
    assert done.returncode == 0
    assert read_status(tmp_path / "runs" / "x")["state"] == "complete"


def test_a_full_disk_is_one_error_with_the_file(model, tmp_path, monkeypatch, caplog):
    def full(run, *arguments, **options):
        raise OSError(errno.ENOSPC, "No space left on device", "there")

    begun = RunDir.set_status
    monkeypatch.setattr(RunDir, "write_rollouts", full)
    monkeypatch.setattr(RunDir, "set_status", lambda run, state, step, **more: (full, begun)[state == "running"](
        run, state, step, **more))  # fmt: skip
    with pytest.raises(OSError, match="No space left on device: 'there'"):
        train(model, tmp_path)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_what_cannot_be_written_is_named(tmp_path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        with pytest.raises(OSError, match="too large") as caught:
            write_text(tmp_path / "config.json", "x" * 1000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert caught.value.filename == str(tmp_path / "config.json")
    assert list(tmp_path.iterdir()) == []


def test_every_file_of_a_run_is_in_the_docs(model, tmp_path):
    task = start.Task(LengthEnv, examples(16), examples(2))
    tree = {"output": {"dir": str(tmp_path), "name": "run", "save_tokens": True}}
    path = asyncio.run(start.train(settings(model, tmp_path, **tree), task=task)).path
    docs = Path(__file__).parents[3] / "docs" / "training.md"
    listing = docs.read_text().partition("runs/<name>/\n")[2].partition("```")[0]
    ours = (file for file in path.rglob("*") if file.is_file() or "step-" in file.name)
    names = (file.relative_to(path).as_posix() for file in ours if "step-" not in file.parent.name)
    shown = {re.sub(r"-\d+", "", name) for name in names}
    listed = re.sub(
        r"-<\w+>/?", "", re.sub(r"checkpoints/latest  best", "checkpoints/latest checkpoints/best", listing)
    )
    assert shown <= set(listed.split()), "the listing under What a run leaves"
    assert {"run.json", "checkpoints/best", "checkpoints/step", "logs/train.log", "rollouts/eval.jsonl"} <= shown


def test_an_exported_tokenizer_may_have_several_templates(model, tmp_path):
    several = shutil.copytree(model, tmp_path / "several")
    tokenizer = AutoTokenizer.from_pretrained(several)
    tokenizer.chat_template = {"default": tokenizer.chat_template, "tool_use": tokenizer.chat_template}
    tokenizer.save_pretrained(several)
    out = export_merged(train(several, tmp_path), tmp_path / "out")
    folders = [path for path in out.rglob("*") if path.is_dir()]
    assert folders
    assert all(path.stat().st_mode & 0o100 for path in folders), "its owner may enter it"
    assert {path.stat().st_mode & 0o777 for path in out.rglob("*") if path.is_file()} == {0o644}


def test_the_model_card_names_an_environment_given_in_code(model, tmp_path):
    card = (export_merged(train(model, tmp_path), tmp_path / "out") / "README.md").read_text()
    assert "trained with GRPO on the environment `LengthEnv`" in card
    assert '"grpo"' in card


def test_the_model_card_has_no_path_of_this_machine(model, tmp_path):
    path = train(model, tmp_path)
    files = {"data": {"train": "/home/me/rows.jsonl"}, "sft": {"data": "/home/me/sft.jsonl"}}
    config = build_config({**settings(model, tmp_path).model_dump(), **files, "warm_start": "/home/me/chats.jsonl"})
    card = model_card(path, config, choose_checkpoint(path, "latest"))
    assert "/home/me" not in card
    assert "chats.jsonl" in card
    assert str(tmp_path) not in card


def test_the_model_card_of_a_supervised_run_says_so(model, tmp_path):
    path = train(model, tmp_path)
    for file in (path / "rollouts").glob("*.jsonl"):
        file.unlink()
    config = build_config({**settings(model, tmp_path).model_dump(), "sft": {"data": "answers.jsonl"}})
    card = model_card(path, config, choose_checkpoint(path, "latest"))
    assert "trained on given answers" in card
    assert '"sft"' in card
    assert "grpo" not in card.lower().partition("## settings")[0]
