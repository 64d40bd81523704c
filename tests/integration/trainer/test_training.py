"""Whole training runs of a toy model: it learns, it resumes exactly, it exports, it ends when it should."""

from __future__ import annotations

import asyncio
import errno
import itertools
import json
import resource
import shutil
import threading
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import typer
from transformers import AutoModelForCausalLM, AutoTokenizer
from typer.testing import CliRunner

from benchmax.cli.local import train as commands
from benchmax.envs.base_env import BaseEnv
from benchmax.envs.example_id import make_example
from benchmax.envs.reward_helpers import extract_completion_text
from benchmax.envs.types import ToolDefinition
from benchmax.errors import ConfigError, DatasetError, NotFoundError, RewardError, UsageError
from benchmax.inference.local_model import LocalModel
from benchmax.inference.tokens.chat import ChatTokens
from benchmax.inference.weights.store import KNOWN, Card
from benchmax.models.base import Sampling
from benchmax.models.registry import open_local
from benchmax.rollouts.record_files import read_rollouts
from benchmax.trainer import interrupts, loop
from benchmax.trainer.checkpoint import choose_checkpoint, find_checkpoint
from benchmax.trainer.config import build_config
from benchmax.trainer.display.view import describe
from benchmax.trainer.export import base_name, export_adapter, export_merged
from benchmax.trainer.learning.learner import Learner
from benchmax.trainer.rundir import read_metrics
from benchmax.trainer.sampling.sampler import EngineSampler
from benchmax.trainer.start import resume, train
from benchmax.trainer.task import Task, load_task
from benchmax.trainer.tiny_model import make_tiny
from training_world import config, go

torch.set_num_threads(1)  # the models are tiny

CLOCK = {"seconds/sample", "seconds/update", "tokens_per_second"}


class DigitsEnv(BaseEnv):
    """Pays for digits: a model with random weights can find that out by itself."""

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        text = extract_completion_text(messages)
        return {"digits": sum(letter.isdigit() for letter in text) / max(1, len(text))}


class BrokenEnv(BaseEnv):
    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        raise RuntimeError("the judge is down")


def examples(count: int = 24) -> list:
    return [make_example(prompt_messages=[{"role": "user", "content": f"{i}?"}]) for i in range(count)]


TASK = Task(DigitsEnv, examples()[:16], examples()[16:])


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_tiny(tmp_path_factory.mktemp("model"), hidden=32, layers=2)


def series(path):
    """All numbers of a run but those of the clock."""
    return [
        (line["step"], line["split"], {name: v for name, v in line["values"].items() if name not in CLOCK})
        for line in read_metrics(path)
    ]


def events(path, kind):
    lines = [json.loads(line) for line in (path / "events.jsonl").read_text().splitlines()]
    return [line for line in lines if line["kind"] == kind]


@pytest.fixture(scope="module", params=[pytest.param("full", marks=pytest.mark.slow), "lora"])
def trained(request, model, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    tree = config(model, folder, model={"tune": request.param}, limits={"steps": 24}, optim={"lr": 1e-2})
    return go(train(tree, task=TASK))


def test_it_learns_on_held_out_rows(trained):
    assert trained.reason == "steps"
    assert trained.first_eval["reward/mean"] < 0.4
    assert trained.last_eval["reward/mean"] > trained.first_eval["reward/mean"] + 0.4


def test_the_run_directory_tells_the_whole_story(trained):
    lines = read_metrics(trained.path)
    assert [line["step"] for line in lines if line["split"] == "train"] == list(range(24))
    assert [line["step"] for line in lines if line["split"] == "eval"] == [0, 4, 8, 12, 16, 20, 24]
    first = next(line["values"] for line in lines if line["split"] == "train")
    wanted = {
        "reward/mean", "reward/std", "pass@k", "max@k", "solve_rate", "response_tokens/mean", "loss", "entropy", "lr",
        "reward_stats/digits/reward/mean", "clip_fraction", "drift", "grad_norm", "tokens_per_second", "seconds/sample",
        "seconds/update", "skipped_groups",
    }  # fmt: skip
    assert wanted <= set(first)
    assert first["drift"] < 1e-4, "trainer and engine agree on log-probs"
    rollouts = list(read_rollouts(trained.path / "rollouts" / "train-0.jsonl"))
    assert len(rollouts) >= 16
    assert all(rollout.advantage is not None and rollout.reward is not None for rollout in rollouts)
    assert json.loads((trained.path / "status.json").read_text())["state"] == "complete"
    assert {path.name for path in (trained.path / "checkpoints").iterdir()} >= {"latest", "best", "step-24"}
    assert len(events(trained.path, "started")) == len(events(trained.path, "ended")) == 1


def test_export_loads_in_plain_transformers(trained, model, tmp_path):
    out = export_merged(trained.path, tmp_path / "merged", which="latest")
    plain = AutoModelForCausalLM.from_pretrained(out)
    tokenizer = AutoTokenizer.from_pretrained(out)
    ids = tokenizer.apply_chat_template(
        [{"role": "user", "content": "7?"}], add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    said = tokenizer.decode(plain.generate(**ids, max_new_tokens=6, do_sample=False)[0, ids["input_ids"].shape[1] :])
    assert sum(letter.isdigit() for letter in said) >= 3
    assert "# run" in (out / "README.md").read_text()
    assert "mean reward" in (out / "README.md").read_text()
    with pytest.raises(UsageError, match="not empty"):
        export_merged(trained.path, out)


def test_adapter_is_peft_and_equals_the_merged_model(trained, model, tmp_path):
    if "lora" not in str(trained.path):
        with pytest.raises(UsageError, match="no adapter"):
            export_adapter(trained.path, tmp_path / "adapter")
        return
    from peft import PeftModel

    out = export_adapter(trained.path, tmp_path / "adapter", which="latest")
    adapted = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(model), str(out))
    merged = AutoModelForCausalLM.from_pretrained(export_merged(trained.path, tmp_path / "merged", which="latest"))
    ids = torch.arange(20)[None]
    with torch.no_grad():
        assert torch.allclose(adapted(ids).logits, merged(ids).logits, atol=1e-4)
    served = LocalModel.load(model, checkpoint=out)
    served.engine.close()
    assert served.name == f"{model.name}:adapter", "not to be taken for the base model"


async def test_a_run_is_served_as_the_model_it_made(trained, tmp_path):
    merged = export_merged(trained.path, tmp_path / "merged", which="latest")
    ask, greedy, drawn = [{"role": "user", "content": "7?"}], Sampling(temperature=0, max_tokens=8), []
    for name in (f"{trained.path}:latest", str(merged)):
        async with open_local(name, device="cpu") as served:
            drawn.append((await served.converse(sampling=greedy).reply(ask)).segments[1].ids)
    assert drawn[0] == drawn[1]
    with pytest.raises(NotFoundError, match="no checkpoint step-999"):
        open_local(f"{trained.path}:step-999")


@pytest.mark.parametrize("tune", [pytest.param("full", marks=pytest.mark.slow), "lora"])
def test_a_resumed_run_equals_an_unbroken_one(model, tmp_path, tune):
    more = {"model": {"tune": tune}, "algorithm": {"kl": 0.01, "updates": 2}, "data": {"curriculum": "pass_rate"}}
    whole = go(train(config(model, tmp_path / "whole", limits={"steps": 6}, **more), task=TASK))
    part = go(train(config(model, tmp_path / "part", limits={"steps": 3}, **more), task=TASK))
    # The last step is lost, as in a crash: the newest checkpoint is that of step 2.
    (part.path / "checkpoints" / "latest").write_text("step-2")
    again = go(resume(part.path, task=TASK, changes={"limits": {"steps": 6}}))
    assert again.step == 6
    lost = [line for line in series(part.path) if line[:2] != (3, "eval")]
    assert lost == [line for line in series(whole.path) if line[:2] != (3, "eval")]
    assert events(part.path, "resumed")[0]["lines_moved_aside"] == 2


def test_resume_keeps_what_made_the_run(model, tmp_path):
    path = go(train(config(model, tmp_path, limits={"steps": 1}), task=TASK)).path
    with pytest.raises(ConfigError, match="optim cannot change"):
        go(resume(path, task=TASK, changes={"optim": {"lr": 1}}))


def test_a_run_ends_at_its_target_its_patience_or_its_time(model, tmp_path, monkeypatch):
    every = {"every": 1}
    done = go(train(config(model, tmp_path / "a", eval={**every, "target": 0.0}), task=TASK))
    assert (done.reason, done.step) == ("target", 0)
    done = go(train(config(model, tmp_path / "b", eval={**every, "patience": 1}, optim={"lr": 1e-12}), task=TASK))
    assert (done.reason, done.step) == ("patience", 1)
    looks = itertools.count()
    clock = SimpleNamespace(monotonic=lambda: next(looks) / 100)  # it moves when it is looked at, on any machine
    monkeypatch.setattr(loop, "time", clock)
    done = go(train(config(model, tmp_path / "c", limits={"steps": 1000, "seconds": 1.0}), task=TASK))
    assert done.reason == "time"
    assert 0 < done.step < 1000


class LateEnv(DigitsEnv):
    """Its judge is down at first."""

    scored = 0

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        LateEnv.scored += 1
        if LateEnv.scored <= 32:
            raise RuntimeError("the judge is down")
        return await super().compute_reward(rollout_id, messages, task, **kwargs)


def test_unscored_steps_are_skipped_counted_and_alarmed(model, tmp_path):
    LateEnv.scored = 0
    more = {"watch": {"equal_steps": 2}, "rollouts": {"max_extra_groups": 0}}
    done = go(train(config(model, tmp_path, **more), task=Task(LateEnv, examples(16), [])))
    assert done.step == 4, "the run goes on"
    lines = read_metrics(done.path)[:2]
    assert all(line["values"]["groups/used"] == 0 and "loss" not in line["values"] for line in lines)
    alerts = {event["alert"]: event["message"] for event in events(done.path, "alert")}
    assert "no_signal" in alerts
    assert "the judge is down" in alerts["unscored"]
    rollouts = list(read_rollouts(done.path / "rollouts" / "train-0.jsonl"))
    assert {rollout.discarded for rollout in rollouts} == {"unscored"}


@pytest.mark.parametrize(("steps", "done"), [(2, 2), (100, loop.UNSCORED_STEPS)])
def test_a_run_that_never_sees_a_reward_fails_and_says_why(model, tmp_path, steps, done):
    limits = {"limits": {"steps": steps}}
    with pytest.raises(RewardError, match=f"No rollout got a reward in {done} steps.*the judge is down"):
        go(train(config(model, tmp_path, **limits), task=Task(BrokenEnv, examples(16), examples(2))))
    status = json.loads((tmp_path / "run" / "status.json").read_text())
    assert (status["state"], status["step"]) == ("failed", done)
    if steps > done:
        again = go(resume(tmp_path / "run", task=TASK, changes={"limits": {"steps": done + 1}}))
        assert again.reason == "steps", "once the judge is back, the run can go on"


def test_silent_groups_are_replaced_up_to_the_bound(model, tmp_path):
    more = {"rollouts": {"prompts_per_step": 4, "max_extra_groups": 3}, "limits": {"steps": 1}}
    with pytest.raises(RewardError):
        go(train(config(model, tmp_path, **more), task=Task(BrokenEnv, examples(16), [])))
    assert read_metrics(tmp_path / "run")[0]["values"]["groups"] == 7


class FlatEnv(BaseEnv):
    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"same": 1.0}


def test_of_equally_good_checkpoints_the_latest_is_the_best(model, tmp_path):
    more = {"eval": {"every": 1, "patience": 2}, "checkpoint": {"every": 1}, "limits": {"steps": 9}}
    done = go(train(config(model, tmp_path, **more), task=Task(FlatEnv, examples(16), examples(2))))
    assert (done.reason, done.step) == ("patience", 2), "an equal result is no better one"
    assert (done.path / "checkpoints" / "best").read_text() == "step-2"
    assert choose_checkpoint(done.path).step == 2


def test_an_export_into_the_folder_one_stands_in(trained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    export_merged(trained.path, Path(), which="latest")
    assert {"config.json", "model.safetensors", "README.md"} <= {file.name for file in tmp_path.iterdir()}
    assert not list(tmp_path.parent.glob(".tmp-*"))


def test_a_model_given_by_a_relative_path_is_found_from_anywhere(model, tmp_path, monkeypatch):
    monkeypatch.chdir(model.parent)
    limits = {"steps": 1}
    done = go(train(config(model.name, tmp_path / "a", limits=limits, model={"name": f"./{model.name}"}), task=TASK))
    monkeypatch.chdir(tmp_path)
    assert export_merged(done.path, tmp_path / "out", which="latest").is_dir()


@pytest.mark.filterwarnings("ignore:Model has .tie_word_embeddings")
@pytest.mark.parametrize("target", ["embed_tokens", "no_such_layer"])
def test_lora_targets_that_cannot_be_adapted_are_told(model, tmp_path, target):
    wrong = config(model, tmp_path, model={"name": str(model), "tune": "lora"}, lora={"targets": [target]})
    with pytest.raises(ConfigError, match=rf"lora.targets \['{target}'\].* all-linear"):
        go(train(wrong, task=TASK))


def test_a_model_whose_file_was_cut_off_is_told_by_the_files_name(model, tmp_path):
    broken = tmp_path / "broken"
    shutil.copytree(model, broken)
    weights = broken / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(UsageError, match=r"model\.safetensors cannot be read: .* again"):
        go(train(config(broken, tmp_path), task=TASK))


def test_export_on_a_full_disk_is_one_clear_error_and_leaves_nothing(trained, tmp_path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, before[1]))
    try:
        with pytest.raises(OSError, match="too large") as caught:
            export_merged(trained.path, tmp_path / "out")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (caught.value.errno, caught.value.filename) == (errno.EFBIG, str(tmp_path / "out"))
    assert list(tmp_path.iterdir()) == []


def test_nothing_of_this_machine_is_in_an_export(model, tmp_path):
    done = go(train(config(model, tmp_path, model={"tune": "lora"}, limits={"steps": 1}), task=TASK))
    adapter = export_adapter(done.path, tmp_path / "adapter")
    merged = export_merged(done.path, tmp_path / "merged")
    assert json.loads((adapter / "adapter_config.json").read_text())["base_model_name_or_path"] == model.name
    assert 'library_name: "peft"' in (adapter / "README.md").read_text().split("---")[1]
    assert 'library_name: "transformers"' in (merged / "README.md").read_text().split("---")[1]
    assert "benchmax serve FOLDER" in (merged / "README.md").read_text()
    modes = {file.stat().st_mode for folder in (adapter, merged) for file in folder.iterdir()}
    assert len(modes) == 1, "the weights can be read by whom the card can be read by"
    for file in [*adapter.iterdir(), *merged.iterdir()]:
        assert str(tmp_path.parent) not in file.read_text("latin-1"), file
    assert base_name("smollm2-135m") == "smollm2-135m", "the hub's weights are other ones"
    assert base_name("org/name") == "org/name"


def test_a_model_card_carries_the_base_models_licence(model, tmp_path):
    from benchmax.trainer.export import _licence

    stored = {"name": "m", "title": "M", "source": "here", "license": "MIT", "sha256": "", "parameters": 1, "bytes": 1}
    licensed = tmp_path / "licensed"
    shutil.copytree(model, licensed)
    assert _licence(str(licensed)) == {}
    (licensed / "benchmax.json").write_text(json.dumps(stored))
    assert _licence(str(licensed)) == {"license": "mit"}


def test_an_adapter_on_dequantised_weights_names_them_and_not_the_hubs(model, tmp_path, monkeypatch):
    monkeypatch.setenv("BENCHMAX_HOME", str(tmp_path / "home"))
    stored = tmp_path / "home" / "models" / "smollm2-135m"
    shutil.copytree(model, stored)
    known = KNOWN["smollm2-135m"]
    card = Card(known.name, known.title, "here", known.license, "", 1, 1, file="a.gguf", quantisation="Q4_1")
    (stored / "benchmax.json").write_text(json.dumps(asdict(card)))
    done = go(train(config("smollm2-135m", tmp_path, model={"tune": "lora"}, limits={"steps": 1}), task=TASK))
    adapter, merged = export_adapter(done.path, tmp_path / "adapter"), export_merged(done.path, tmp_path / "merged")
    assert json.loads((adapter / "adapter_config.json").read_text())["base_model_name_or_path"] == "smollm2-135m"
    text = (adapter / "README.md").read_text()
    assert 'base_model: "smollm2-135m"' in text.split("---")[1]
    assert "not the full-precision weights of HuggingFaceTB/SmolLM2-135M-Instruct" in text
    for command in ("models pull smollm2-135m", "models path smollm2-135m", "export RUN FOLDER"):
        assert f"`benchmax {command}`" in text
    assert "dequantised from Q4_1 (a.gguf)" in text
    assert "dequantised from Q4_1 (a.gguf)" in (merged / "README.md").read_text()
    assert "adapter belongs" not in (merged / "README.md").read_text()


def rows_file(folder, count, bad=0):
    rows = [json.dumps({"question": f"{i} + 1?", "ground_truth": str(i + 1)}) for i in range(count)]
    (folder / "rows.jsonl").write_text("\n".join(rows + ["{"] * bad) + "\n")
    return str(folder / "rows.jsonl")


def test_unusable_rows_are_left_out_when_asked(tmp_path):
    data = {"env": "arithmetic", "train": rows_file(tmp_path, 20, bad=2)}
    with pytest.raises(DatasetError, match="2 of 22 rows"):
        load_task(build_config({"data": data}))
    task = load_task(build_config({"data": {**data, "lenient": True}}))
    assert len(task.train) + len(task.held_out) == 20
    assert "2 of 22 rows" in task.notes[0]


def test_a_share_that_leaves_too_few_rows_holds_out_fewer_and_is_noted(tmp_path):
    data = {"env": "arithmetic", "train": rows_file(tmp_path, 100)}
    for share, kept in ((0.99, 8), (0.9, 10)):
        task = load_task(build_config({"data": {**data, "eval_share": share}}))
        assert (len(task.train), len(task.held_out)) == (kept, 100 - kept)
        assert f"{100 - kept} of 100 rows are held out, which leaves {kept} to train on" in task.notes[0]
    assert not load_task(build_config({"data": data})).notes


async def test_an_interrupt_saves_and_gives_up_a_step_that_takes_too_long(model, tmp_path, monkeypatch):
    monkeypatch.setattr(interrupts, "GRACE_SECONDS", 0.1)
    started = asyncio.Event()

    class SlowEnv(DigitsEnv):
        async def compute_reward(self, rollout_id, messages, task, **kwargs):
            main.call_soon_threadsafe(started.set)
            await asyncio.sleep(30)

    main = asyncio.get_running_loop()
    seen: list[Callable[[], None]] = []
    monkeypatch.setattr("benchmax.trainer.start.handle_signals", _remember(seen))
    told: list[str] = []
    task = Task(SlowEnv, examples(16), [])
    running = asyncio.create_task(
        train(
            config(model, tmp_path), task=task, on_event=lambda kind, data: told.append(describe(kind, data, 3) or "")
        )
    )
    await started.wait()
    seen[0]()
    done = await asyncio.wait_for(running, 60)
    assert sum("Ctrl-C again stops at once" in line for line in told) == 1, "who pressed Ctrl-C is answered"
    assert any("with 16 rows, 0 held out; the run is kept in" in line for line in told)
    assert (done.reason, done.step) == ("interrupted", 0)
    assert (done.path / "checkpoints" / "latest").read_text() == "step-0"
    assert json.loads((done.path / "status.json").read_text())["state"] == "interrupted"


async def test_a_run_cancelled_while_it_first_pushes_its_weights_ends(model, tmp_path, monkeypatch):
    pushing, go_on, push, main = asyncio.Event(), threading.Event(), EngineSampler.push, asyncio.get_running_loop()

    def slowly(sampler, weights):
        main.call_soon_threadsafe(pushing.set)
        go_on.wait(60)
        push(sampler, weights)

    monkeypatch.setattr(EngineSampler, "push", slowly)
    running = asyncio.create_task(train(config(model, tmp_path), task=TASK))
    await asyncio.wait_for(pushing.wait(), 60)
    running.cancel()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert read_metrics(tmp_path / "run") == []


def test_rows_of_which_none_fits_the_model_are_refused_before_the_first_step(model, tmp_path):
    long = [make_example([{"role": "user", "content": f"{i} " * 3000}], {"ground_truth": "1"}) for i in range(16)]
    with pytest.raises(DatasetError, match=r"No prompt fits .* of 16 rows looked at, the shortest has \d,\d+\. Short"):
        go(train(config(model, tmp_path), task=Task(DigitsEnv, long, [])))
    assert list(tmp_path.rglob("config.toml")) == [], "a run that never began does not take the name"
    some = Task(DigitsEnv, [*long, *examples(16)], [])
    assert go(train(config(model, tmp_path / "some", limits={"steps": 1}), task=some)).step == 1


class ToolsEnv(DigitsEnv):
    """Its tools alone are longer than the model's context."""

    async def list_tools(self):
        return [ToolDefinition("add", "Adds. " * 3000, {"type": "object", "properties": {}})]


def test_the_tools_count_when_prompts_are_measured(model, tmp_path):
    with pytest.raises(DatasetError, match="No prompt fits"):
        go(train(config(model, tmp_path), task=Task(ToolsEnv, examples(16), [])))


def test_a_run_whose_memory_ran_out_is_resumed_with_the_smaller_batches_it_went_on_with(model, tmp_path, monkeypatch):
    """Gradients of other micro-batches add up in another order, and the series would not be the same."""
    backward, full = Learner._backward, [True]

    def once_full(learner, *rest):
        if full:
            full.clear()
            raise torch.OutOfMemoryError("full")
        return backward(learner, *rest)

    tree = {"optim": {"lr": 1e-2, "token_budget": 256, "row_tokens": 128}}
    whole = config(model, tmp_path / "whole", limits={"steps": 4}, **tree)
    monkeypatch.setattr(Learner, "_backward", once_full)
    unbroken = go(train(whole, task=TASK))
    full.append(True)
    half = go(train(config(model, tmp_path / "half", limits={"steps": 2}, **tree), task=TASK))
    go(resume(half.path, task=TASK, changes={"limits": {"steps": 4}}))
    assert not full, "memory ran out in both runs"
    assert find_checkpoint(half.path / "checkpoints").state()["learner"]["token_budget"] == 128
    assert series(half.path)[-3:] == series(unbroken.path)[-3:]


def _remember(seen):
    import contextlib

    @contextlib.contextmanager
    def remember(interrupt, on_kill):
        seen.append(interrupt)
        yield

    return remember


def test_prompts_shared_by_siblings_are_rendered_once(model, monkeypatch):
    shared, plain = ChatTokens(model), ChatTokens(model)
    messages = [{"role": "user", "content": "1?"}]
    wanted = plain.prompt(messages)
    shared.prompt(messages).append(7)
    monkeypatch.setattr(shared, "_render", None)
    assert shared.prompt(messages) == wanted


def test_warm_start_is_the_first_stage_of_a_run(model, tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps({"prompt": f"{i}?", "completion": "12345"}) + "\n" for i in range(16)))
    more = {"sft": {"data": str(file), "epochs": 20, "batch": 16, "lr": 1e-2}, "limits": {"steps": 1}}
    done = go(train(config(model, tmp_path, **more), task=TASK))
    (warm,) = [line["values"] for line in read_metrics(done.path) if line["split"] == "warm_start"]
    assert done.first_eval["reward/mean"] < 0.5 < 0.9 < warm["reward/mean"]


def test_the_command_line(model, tmp_path, monkeypatch):
    app = typer.Typer()
    app.command("train", context_settings=commands.CONTEXT)(commands.train)
    app.command("export")(commands.export)
    app.command("plot")(commands.plot)
    rows = rows_file(tmp_path, 24, bad=1)
    monkeypatch.chdir(tmp_path)
    flags = ["--rollouts.max_new_tokens", "4", "--rollouts.group_size=2", "--output.name", "x", "--eval.rows", "2"]
    flags += ["--recipe", "plain", "--model.tune", "full"]
    call = ["train", "arithmetic", "--data", rows, "--lenient", "--model", str(model), "--steps", "1", *flags]
    shell = CliRunner()
    result = shell.invoke(app, call, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert "step 1/1" in result.output
    assert "1 of 25 rows" in result.output
    assert shell.invoke(app, ["train", "--resume", "runs/x", "--steps", "2"], catch_exceptions=False).exit_code == 0
    assert [line["step"] for line in read_metrics(tmp_path / "runs" / "x") if line["split"] == "train"] == [0, 1]
    again = shell.invoke(app, ["train", "--resume", "runs/x"], catch_exceptions=False)
    assert (again.exit_code, "complete after 2 steps" in again.output) == (0, True)
    again = shell.invoke(app, ["train", "--resume", "runs/x", "--steps", "1"], catch_exceptions=False)
    assert "nothing to do" in again.output
    assert len(events(tmp_path / "runs" / "x", "resumed")) == 1
    exported = shell.invoke(app, ["export", "runs/x", "out"], catch_exceptions=False)
    assert (exported.exit_code, "from checkpoint step-" in exported.output) == (0, True)
    assert shell.invoke(app, ["plot", "runs/x", "curve.svg"], catch_exceptions=False).exit_code == 0
    assert "optim.lr" in shell.invoke(app, ["train", "--settings"]).output
    with pytest.raises(ConfigError, match=r"did you mean optim\.lr"):
        shell.invoke(app, [*call, "--optim.lrr", "1"], catch_exceptions=False)
    with pytest.raises(UsageError, match=r"'more\.jsonl' is one word too many: the environment is 'arithmetic'"):
        shell.invoke(app, [*call, "more.jsonl"], catch_exceptions=False)
    with pytest.raises(ConfigError, match="No environment"):
        shell.invoke(app, ["train"], catch_exceptions=False)


def test_a_run_remembers_its_files_by_their_full_path(tmp_path, monkeypatch):
    from benchmax.envs.composed.parts import short_name
    from benchmax.trainer.config import build_config
    from benchmax.trainer.task import make_paths_absolute

    (tmp_path / "rows.jsonl").write_text("{}\n")
    monkeypatch.chdir(tmp_path)
    config = build_config({"data": {"env": "main.py:MyEnv", "train": "rows.jsonl", "eval": "hf:owner/name"}})
    make_paths_absolute(config)
    assert config.data.env == f"{tmp_path}/main.py:MyEnv"
    assert config.data.train == f"{tmp_path}/rows.jsonl"
    assert config.data.eval == "hf:owner/name"
    assert [short_name(env) for env in ("main.py:MyEnv", "package.module.MyEnv", "arithmetic", "")] == [
        "main", "MyEnv", "arithmetic", "run",
    ]  # fmt: skip
