"""The run directory survives kills, torn lines and full disks; checkpoints are whole or absent."""

from __future__ import annotations

import asyncio
import io
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from benchmax.errors import NotFoundError, RecordError, UsageError
from benchmax.files.redaction import keep_secret
from benchmax.rollouts.record import Rollout
from benchmax.rollouts.record_files import read_rollouts
from benchmax.trainer import checkpoint as checkpoints
from benchmax.trainer.checkpoint import find_checkpoint, go_back, mark_best, prune, save_checkpoint
from benchmax.trainer.config import LoraConfig, OptimConfig, TrainConfig, build_config
from benchmax.trainer.display.plot import plot_metrics, plot_run
from benchmax.trainer.display.view import LiveView, PlainView, describe, sparkline
from benchmax.trainer.ending import ending_again
from benchmax.trainer.export import base_name
from benchmax.trainer.learning.optim import Optimizer, scale_at
from benchmax.trainer.learning.policy import Policy
from benchmax.trainer.loop import Trainer
from benchmax.trainer.open_checkpoint import read_weights
from benchmax.trainer.progress import Progress
from benchmax.trainer.rundir import RunDir, check_run, read_config, read_metrics, read_status
from benchmax.trainer.task import make_paths_absolute
from benchmax.trainer.tiny_model import make_tiny
from benchmax.trainer.watch.history import most_common_error

torch.set_num_threads(1)  # the models are tiny


@pytest.fixture
def run(tmp_path):
    opened = RunDir.create(tmp_path / "run", TrainConfig(seed=7))
    yield opened
    opened.close()


def test_config_is_saved_and_a_run_is_never_written_over(run):
    assert read_config(run.path) == TrainConfig(seed=7)
    with pytest.raises(UsageError, match="already holds a run"):
        RunDir.create(run.path, TrainConfig())


def test_metrics_are_strict_json(run):
    run.log_metrics(0, "train", {"reward/mean": 0.5, "loss": math.nan, "grad_norm": math.inf})
    assert [line["values"] for line in read_metrics(run.path)] == [{"reward/mean": 0.5}]


def test_torn_tail_is_cut_and_middle_damage_named(run):
    run.log_metrics(0, "train", {"a": 1.0})
    run.close()
    file = run.path / "metrics.jsonl"
    whole = file.read_bytes()
    file.write_bytes(whole + b'{"step": 1, "spl')
    RunDir.open(run.path).close()
    assert file.read_bytes() == whole
    file.write_bytes(b"\0\0\0\n" + whole)
    with pytest.raises(RecordError, match=r"metrics\.jsonl:1"):
        read_metrics(run.path)


def test_rewind_moves_later_records_aside(run):
    for step in range(4):
        run.log_metrics(step, "eval", {"x": 1.0})
        run.log_metrics(step, "train", {"x": 1.0})
        run.write_rollouts("train", step, [Rollout("r", "e")])
    assert run.rewind(2) == 3
    assert [(line["step"], line["split"]) for line in read_metrics(run.path)] == [
        (0, "eval"), (0, "train"), (1, "eval"), (1, "train"), (2, "eval"),
    ]  # fmt: skip
    assert {path.name for path in (run.path / "rollouts").iterdir()} == {"train-0.jsonl", "train-1.jsonl"}
    assert len(list((run.path / "aside").iterdir())) == 3
    run.log_metrics(2, "train", {"x": 2.0})
    assert read_metrics(run.path)[-1]["values"] == {"x": 2.0}


def test_an_evaluation_after_the_checkpoint_is_moved_aside(run):
    run.log_metrics(1, "train", {"x": 1.0})
    run.log_metrics(2, "eval", {"x": 1.0})
    run.write_rollouts("eval", 2, [Rollout("r", "e")])
    assert run.rewind(2, evaluated=False) == 1
    assert [line["split"] for line in read_metrics(run.path)] == ["train"]
    assert list((run.path / "rollouts").iterdir()) == []


def test_future_missing_and_damaged_runs_are_refused_politely(run, tmp_path):
    with pytest.raises(NotFoundError, match="no run"):
        RunDir.open(tmp_path / "nothing")
    (run.path / "config.json").rename(run.path / "gone.json")
    with pytest.raises(RecordError, match=r"config\.json"):
        read_config(run.path)
    (run.path / "run.json").write_text(json.dumps({"format": 99}))
    with pytest.raises(RecordError, match="Upgrade benchmax"):
        RunDir.open(run.path)


def test_a_run_of_before_is_read_as_it_was_started(run):
    settings = json.loads((run.path / "config.json").read_text())
    del settings["data"]["hold_out"], settings["backend"], settings["watch"]
    (run.path / "config.json").write_text(json.dumps(settings))
    config = read_config(run.path)
    assert (config.data.hold_out, config.backend) == ("last", "embedded")
    (run.path / "run.json").write_text("{}")
    run.close()
    RunDir.open(run.path).close()
    progress = Progress.from_dict({"step": 3, "best": 0.5, "no_longer_kept": 1})
    assert (progress.step, progress.best, progress.lessons) == (3, 0.5, 0)
    record = {"id": "r", "example_id": "e", "reward": 1.0, "termination": "finished", "no_longer_kept": 1}
    (run.path / "rollouts" / "train-0.jsonl").write_text(json.dumps(record) + "\n")
    (rollout,) = read_rollouts(run.path / "rollouts" / "train-0.jsonl")
    assert (rollout.reward, rollout.rewards, rollout.tokens) == (1.0, {}, [])


def test_two_processes_cannot_write_one_run(run):
    with pytest.raises(UsageError, match="another process"):
        RunDir.open(run.path)


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return make_tiny(tmp_path_factory.mktemp("tiny"), hidden=32, layers=1)


def trained(directory, tune: str = "lora") -> tuple[Policy, Optimizer]:
    torch.manual_seed(0)
    policy = Policy.from_directory(directory, tune=tune, lora=LoraConfig(rank=2))
    optimizer = Optimizer(policy.parameters(), OptimConfig(), lr=1e-2, total=10)
    step(policy, optimizer)
    return policy, optimizer


def step(policy: Policy, optimizer: Optimizer) -> None:
    policy.model(torch.arange(10)[None]).logits.square().mean().backward()
    optimizer.step()


@pytest.mark.parametrize("tune", ["lora", "full"])
def test_checkpoint_brings_everything_back(directory, tmp_path, tune):
    policy, optimizer = trained(directory, tune)
    save_checkpoint(tmp_path, 1, policy, optimizer, {"note": "x"})
    draw = torch.rand(3)
    step(policy, optimizer)
    wanted = {name: weight.detach().clone() for name, weight in policy.parameters().items()}
    other, fresh = trained(directory, tune)
    state = find_checkpoint(tmp_path).restore(other, fresh)
    assert state["note"] == "x"
    assert torch.equal(torch.rand(3), draw), "random generators too"
    step(other, fresh)
    assert fresh.updates == 2
    for name, weight in other.parameters().items():
        assert torch.equal(weight, wanted[name]), name


def test_a_failed_save_leaves_the_last_checkpoint_and_no_rubbish(directory, tmp_path, monkeypatch):
    policy, optimizer = trained(directory)
    save_checkpoint(tmp_path, 1, policy, optimizer, {})
    monkeypatch.setattr(checkpoints, "random_states", lambda: (_ for _ in ()).throw(OSError(28, "No space left")))
    with pytest.raises(OSError, match="No space"):
        save_checkpoint(tmp_path, 2, policy, optimizer, {})
    assert find_checkpoint(tmp_path).step == 1
    assert {path.name for path in tmp_path.iterdir()} == {"latest", "step-1"}


def test_a_checkpoint_that_cannot_be_replaced_stays(directory, tmp_path, monkeypatch):
    policy, optimizer = trained(directory)
    save_checkpoint(tmp_path, 1, policy, optimizer, {"note": "old"})
    rename = Path.rename

    def fail(self, target):
        if self.name.startswith(".tmp-step"):
            raise OSError(5, "Input/output error")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(OSError, match="Input/output"):
        save_checkpoint(tmp_path, 1, policy, optimizer, {"note": "new"})
    assert {path.name for path in tmp_path.iterdir()} == {"latest", "step-1"}
    assert find_checkpoint(tmp_path).state()["note"] == "old"


def test_a_kill_while_a_checkpoint_is_replaced_loses_neither(directory, run, tmp_path):
    policy, optimizer = trained(directory)
    folder = run.path / "checkpoints"
    old = save_checkpoint(folder, 1, policy, optimizer, {"note": "old"})
    new = save_checkpoint(tmp_path / "new", 1, policy, optimizer, {"note": "new"})
    half_way = new.path.rename(folder / ".tmp-step-1-99")
    old.path.rename(half_way / "replaced")
    run.sweep()
    assert {path.name for path in folder.iterdir()} == {"latest", "step-1"}
    assert find_checkpoint(folder).state()["note"] == "new"
    assert not (folder / "step-1" / "replaced").exists()


def test_a_checkpoint_that_training_replaces_while_it_is_read_is_looked_for_again(directory, run, monkeypatch):
    policy, optimizer = trained(directory)
    folder = run.path / "checkpoints"
    save_checkpoint(folder, 1, policy, optimizer, {})
    choose = checkpoints.choose_checkpoint

    def replaced(*given):
        found = choose(*given)
        if found.step == 1:  # the run goes on: this one is gone before it is read
            save_checkpoint(folder, 2, policy, optimizer, {})
            prune(folder, 1, False)
        return found

    monkeypatch.setattr(checkpoints, "choose_checkpoint", replaced)
    found, weights = read_weights(run.path, "latest")
    assert found.step == 2
    assert set(weights) == set(policy.parameters())


@pytest.mark.parametrize(("best", "named"), [(1, "step-1"), (0, None)])
def test_going_back_forgets_the_checkpoints_of_steps_to_come(directory, tmp_path, best, named):
    policy, optimizer = trained(directory)
    for number in (1, 2, 10):
        save_checkpoint(tmp_path, number, policy, optimizer, {})
    mark_best(tmp_path, 10)
    go_back(tmp_path, 2, best)
    there = {path.name: path for path in tmp_path.iterdir()}
    assert set(there) - {"best"} == {"latest", "step-1", "step-2"}
    assert there["latest"].read_text() == "step-2"
    assert (there["best"].read_text() if "best" in there else None) == named


def test_a_best_that_is_not_kept_is_not_named(directory, tmp_path):
    policy, optimizer = trained(directory)
    for number in (1, 2):
        save_checkpoint(tmp_path, number, policy, optimizer, {})
    mark_best(tmp_path, 1)
    prune(tmp_path, keep_last=1, keep_best=False)
    assert {path.name for path in tmp_path.iterdir()} == {"latest", "step-2"}


def test_old_checkpoints_go_the_best_stays(directory, tmp_path):
    policy, optimizer = trained(directory)
    for number in (1, 2, 10, 11):
        save_checkpoint(tmp_path, number, policy, optimizer, {})
        if number == 1:
            mark_best(tmp_path, 1)
    prune(tmp_path, keep_last=2, keep_best=True)
    assert {path.name for path in tmp_path.glob("step-*")} == {"step-1", "step-10", "step-11"}
    assert find_checkpoint(tmp_path, "best").step == 1
    with pytest.raises(NotFoundError, match="there are: step-1, step-10, step-11"):
        find_checkpoint(tmp_path, "step-5")


def test_latest_falls_back_to_the_newest_that_is_whole(directory, tmp_path):
    policy, optimizer = trained(directory)
    for number in (1, 2):
        save_checkpoint(tmp_path, number, policy, optimizer, {})
    again = save_checkpoint(tmp_path, 2, policy, optimizer, {"again": True})
    assert again.state()["again"]
    assert {path.name for path in again.path.iterdir()} == {
        "weights.safetensors", "optimizer.safetensors", "random.safetensors", "state.json",
    }  # fmt: skip
    again.path.rename(tmp_path / ".tmp-lost")
    assert find_checkpoint(tmp_path).step == 1


def test_damaged_or_foreign_checkpoints_are_refused(directory, tmp_path):
    policy, optimizer = trained(directory)
    saved = save_checkpoint(tmp_path, 1, policy, optimizer, {})
    full, other = trained(directory, "full")
    with pytest.raises(RecordError, match="not those of this model"):
        saved.restore(full, other)
    (saved.path / "weights.safetensors").write_bytes(b"half")
    with pytest.raises(RecordError, match="no other checkpoint"):
        saved.restore(policy, optimizer)


def test_schedules():
    assert [scale_at(update, 3, 100, "constant") for update in range(4)] == [0.25, 0.5, 0.75, 1.0]
    assert scale_at(50, 0, 100, "linear") == 0.5
    assert scale_at(50, 0, 100, "cosine") == pytest.approx(0.5)
    assert scale_at(100, 0, 100, "linear") == 0


def test_the_decay_goes_by_steps_also_when_some_had_nothing_to_learn(directory):
    policy, _ = trained(directory)
    optimizer = Optimizer(policy.parameters(), OptimConfig(schedule="linear", warmup_steps=2), lr=1.0, total=12)
    optimizer.due = 7
    assert optimizer.current_lr() == pytest.approx(1 / 3), "the warm-up goes by updates"
    step(policy, optimizer)
    step(policy, optimizer)
    optimizer.due = 7
    assert optimizer.current_lr() == pytest.approx(0.5)
    step(policy, optimizer)
    assert optimizer.current_lr() == pytest.approx(0.4)


VALUES = {
    "reward/mean": 0.4, "solve_rate": 0.3, "pass@k": 0.8, "response_tokens/mean": 12.0, "groups": 8.0,
    "groups/used": 6.0, "seconds/sample": 1.0, "seconds/update": 2.0, "tokens_per_second": 99.0, "loss": 0.1,
}  # fmt: skip
EVENTS = [
    ("metrics", {"step": 0, "split": "eval", "values": VALUES}),
    ("group", {"split": "train", "rollouts": [Rollout("r", "e")]}),
    ("metrics", {"step": 0, "split": "train", "values": VALUES}),
    ("alert", {"alert": "drift", "step": 0, "message": "[red]they disagree[/red]"}),
    ("ended", {"step": 1, "reason": "steps", "seconds": 3.0}),
]


def test_plain_view_is_one_line_per_event():
    stream = io.StringIO()
    with PlainView(5, stream) as view:
        for event in EVENTS:
            view(*event)
    lines = stream.getvalue().splitlines()
    assert len(lines) == 4
    assert "step 1/5  reward 0.400" in lines[1]
    assert lines[2].startswith("ALERT drift in step 1")


def test_a_reward_is_printed_short_and_what_was_not_scored_is_told():
    values = VALUES | {"reward/mean": 7.5e17, "unscored": 0.25}
    line = describe("metrics", {"step": 0, "split": "eval", "values": values}, 5)
    assert line == "eval after 0 of 5 steps  reward 7.5e+17  solved 30%  unscored 25%  length 12"
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    with LiveView(5, console) as view:
        view("metrics", {"step": 0, "split": "train", "values": values})
        view("metrics", {"step": 1, "split": "eval", "values": values})
    assert "7.5e+17 (after 1 steps)" in console.file.getvalue()
    assert "750000" not in console.file.getvalue()


def test_what_another_backend_does_not_measure_is_left_out():
    event = ("metrics", {"step": 0, "split": "train", "values": {"reward/mean": 0.5}})
    assert describe(*event, 5) == "step 1/5  reward 0.500"
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    with LiveView(5, console) as view:
        view(*event)
    assert "0.500" in console.file.getvalue()
    assert "tokens" not in console.file.getvalue()


def test_a_failure_is_told_without_the_words_that_the_error_line_has():
    failed = {"step": 5, "message": "RewardError: No rollout got a reward."}
    assert describe("failed", failed, 9) == "failed after 5 steps"


def test_fetching_is_told_once_in_a_pipe():
    stream = io.StringIO()
    with PlainView(5, stream) as view:
        for got in range(3):
            view("fetching", {"message": f"smollm2-135m: downloading ({got} of 93 MB)"})
    assert stream.getvalue() == "smollm2-135m: downloading (0 of 93 MB)\n"


def test_live_view_says_what_is_going_on_before_the_first_rollout():
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    with LiveView(5, console) as view:
        view("begins", {"run": "runs/x", "model": "tiny", "device": "cpu", "train": 16, "held_out": 4})
        view("resumed", {"step": 2})
        view("started", {"step": 2})
    text = console.file.getvalue()
    assert "tiny on cpu, 16 rows, in runs/x" in text
    assert "sampling" in text.rpartition("now")[2], "not what is over"


def test_live_view_shows_the_run_and_prints_no_markup():
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    with LiveView(5, console) as view:
        for event in EVENTS:
            view(*event)
    text = console.file.getvalue()
    for found in ("1/5", "held-out", "99 tokens/s", "[red]they disagree[/red]", "ended after 1 step ("):
        assert found in text
    assert sparkline([0, 0.5, 1]) == "▁▅█"


@pytest.mark.parametrize("name", ["curve.png", "curve.svg"])
def test_plot(run, tmp_path, name):
    for number in range(3):
        run.log_metrics(number, "eval", {"reward/mean": 0.1 * number})
        run.log_metrics(number, "train", {"reward/mean": 0.1 * number, "pass@k": 0.5})
    out = plot_run(run.path, tmp_path / name)
    assert out.stat().st_size > 5_000
    with pytest.raises(UsageError, match=r"\.png"):
        plot_metrics([], tmp_path / "curve.gif", title="x")


def test_folders_a_person_made_beside_the_checkpoints_are_left_alone(directory, tmp_path):
    policy, optimizer = trained(directory)
    (tmp_path / "step-1-backup").mkdir()
    for number in (1, 2, 3):
        save_checkpoint(tmp_path, number, policy, optimizer, {})
    (tmp_path / "step-3").rename(tmp_path / "step-three")
    assert find_checkpoint(tmp_path).step == 2
    assert [path.name for path in prune(tmp_path, keep_last=1, keep_best=True)] == ["step-1"]
    assert {path.name for path in tmp_path.glob("step-*")} == {"step-1-backup", "step-2", "step-three"}


def test_a_file_a_person_put_beside_the_rollouts_is_left_alone(run):
    for name in ("notes.jsonl", "train-5.jsonl", "train-5-copy.jsonl"):
        (run.path / "rollouts" / name).write_text("")
    run.rewind(3)
    assert sorted(path.name for path in (run.path / "rollouts").iterdir()) == ["notes.jsonl", "train-5-copy.jsonl"]


def test_the_status_holds_no_secret(run):
    keep_secret(["sk-very-secret"])
    try:
        run.set_status("failed", 3, message="the judge refused sk-very-secret")
    finally:
        keep_secret([])
    assert read_status(run.path)["message"] == "the judge refused [secret]"


def test_views_print_no_control_characters():
    said = {"alert": "unscored", "step": 0, "message": "the reward said \x1b[2J\x9b31m"}
    stream, console = io.StringIO(), Console(file=io.StringIO(), force_terminal=True, width=100)
    PlainView(3, stream)("alert", said)
    live = LiveView(3, console)
    live("alert", said)
    live("note", said)
    live("failed", {"step": 1, "message": "no \x1b]0;title\x07"})
    console.print(live)
    assert "\x1b" not in stream.getvalue()
    shown = console.file.getvalue()
    assert "\x1b[2J" not in shown
    assert "\x1b]0" not in shown
    assert "\x9b" not in shown


async def test_cancelling_a_run_ends_the_work_under_way_first(run):
    seen = []

    async def work():
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0)
            seen.append("ended")

    row = {"id": "a", "prompt_messages": [{"role": "user", "content": "q"}]}
    trainer = Trainer(run, None, None, [row])  # type: ignore[arg-type]
    task = asyncio.create_task(trainer.interrupts.unless_stopped(work()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == ["ended"]


def ended(folder: Path, reason: str, **settings: Any) -> Path:
    """A complete run after 20 steps, with the settings that a resume saved before it failed."""
    run = RunDir.create(folder, build_config(settings))
    run.set_status("complete", 20, reason=reason)
    run.log_event("ended", step=20, reason=reason, seconds=50.0)
    run.close()
    return folder


@pytest.mark.parametrize(
    ("reason", "settings"),
    [
        ("steps", {"limits": {"steps": 40}}),
        ("time", {"limits": {"seconds": 100}}),
        ("time", {}),
        ("patience", {}),
        ("target", {}),
        ("solved", {"eval": {"stop_solved": False}}),
        ("a reason of another trainer", {}),
    ],
)
def test_what_ended_a_run_ends_it_again_only_while_the_settings_say_so(tmp_path, reason, settings):
    assert ending_again(ended(tmp_path / "run", reason, **settings), {}) is None


def test_the_same_limit_ends_a_run_again(tmp_path):
    found = ending_again(ended(tmp_path / "run", "time", limits={"seconds": 49}), {"optim": {"lr": 1}})
    assert found == (20, "limits.seconds", "49", "100")


@pytest.mark.parametrize("text", ["[]", "null", "{"])
def test_a_damaged_description_of_a_run_is_named(run, text):
    (run.path / "run.json").write_text(text)
    with pytest.raises(RecordError, match=r"run\.json is damaged"):
        check_run(run.path)


def test_a_file_is_no_run(tmp_path):
    (tmp_path / "file").write_text("x")
    for read in (check_run, read_config):
        with pytest.raises(NotFoundError, match="There is no run"):
            read(tmp_path / "file")


@pytest.mark.parametrize("name", ["~nobody-here/model", "x" * 300])
def test_a_name_that_cannot_be_a_path_is_left_to_whatever_opens_it(name):
    config = TrainConfig(model={"name": name}, data={"train": "x" * 300})
    make_paths_absolute(config)
    assert config.model.name == base_name(name) == name


def test_a_copy_of_a_run_that_lacks_empty_folders_is_opened(run):
    run.close()
    for name in ("rollouts", "checkpoints", "logs"):
        (run.path / name).rmdir()
    RunDir.open(run.path).close()
    assert all((run.path / name).is_dir() for name in ("rollouts", "checkpoints", "logs"))


def test_a_long_reason_keeps_its_advice():
    failed = Rollout(id="a", example_id="a", unscored={"judge": "No answer. " + "x" * 2_000 + " Check the judge"})
    reason = most_common_error([[failed]])
    assert len(reason) == 600
    assert reason.startswith("No answer.")
    assert reason.endswith("Check the judge")
