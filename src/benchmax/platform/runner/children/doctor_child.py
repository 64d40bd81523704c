"""The process that sees to an examination: it makes the environment's packages ready, and starts `doctor_worker` with
them. The environment's code runs only there, and in the environment's own process when a model is to try it.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from benchmax.doctor.findings import HOLDS, held_interpreter
from benchmax.doctor.interpreter_watch import STALL_SECONDS, InterpreterHeld, where_is
from benchmax.envs.remote import Confinement
from benchmax.envs.remote.child import Child, Launch, PlainChild, start_sandboxed
from benchmax.envs.remote.process_limits import code_paths, scrubbed_environment
from benchmax.errors import UsageError
from benchmax.files.redaction import Redactor
from benchmax.platform.runner.children import sandboxing
from benchmax.platform.runner.children.child_files import LAUNCH_FILE, REPORT_FILE, read_object, write_object
from benchmax.platform.runner.children.child_process import Phase, main
from benchmax.platform.runner.children.environment import env_limits, install_packages
from benchmax.sandbox import Sandbox

WORKER = "benchmax.platform.runner.children.doctor_worker"
SECONDS = 600.0
"""For one examination."""
LAST_WORDS_SECONDS = 2.0
"""For what was printed before the end to be passed on."""


async def examine_environment(folder: Path, message: Mapping[str, Any], phase: Phase) -> str:
    """Have the environment examined; the worker leaves its report in the folder."""
    launch = read_object(folder / LAUNCH_FILE)
    variables: Mapping[str, str] = message.get("variables", {})
    python = await _python(launch, phase)
    phase.say("examining the environment")
    await _work(python, folder, launch, variables)
    said = read_object(folder / REPORT_FILE)
    if "problem" in said:
        raise UsageError(str(said["problem"]))
    if not said:
        raise UsageError("The environment's process left no report. Look for what ends it: os._exit, sys.exit.")
    if launch.get("model") and not any(each["check"] == HOLDS for each in said["findings"]):
        write_object(folder / REPORT_FILE, {**said, "signal": await _signal(python, launch, variables, phase)})
    return "The examination is done."


async def _signal(
    python: Path, launch: Mapping[str, Any], variables: Mapping[str, str], phase: Phase
) -> dict[str, Any]:
    """Whether the model can learn from the environment, by its first samples."""
    from benchmax.bundle import read_bundle_files
    from benchmax.doctor.first_samples import first_samples
    from benchmax.envs.datasets.load import load_examples
    from benchmax.envs.loading import load_env_class, own_rows
    from benchmax.envs.remote import open_remote_env
    from benchmax.inference.local import LocalModel
    from benchmax.rollouts.host import EnvHost
    from benchmax.trainer.warm_start.known import known_to

    phase.say(f"letting {launch['model']} try")
    source = read_bundle_files(launch["cls"], launch["metadata"]) if "cls" in launch else launch["spec"]
    env = await open_remote_env(
        source, python=python, variables=variables, process_limits=env_limits(),
        sandbox=await sandboxing.confinement() if "cls" in launch else None,
    )  # fmt: skip
    try:
        if launch.get("rows"):
            examples = list(await env.preprocess(launch["rows"], lenient=True))
        elif "cls" in launch:
            return {}
        else:  # a built-in, whose code is our own
            env_class = load_env_class(launch["spec"])
            examples = list(load_examples(own_rows(env_class), env_class))
        model = await asyncio.to_thread(LocalModel.load, launch["model"])
        async with model, EnvHost(env) as host:
            known = await known_to(model, host, examples)
            return (await first_samples(host, examples, model, known=known)).to_dict()
    finally:
        await env.shutdown()


async def _python(launch: Mapping[str, Any], phase: Phase) -> Path:
    """The interpreter to examine with: for a bundle, one with its packages."""
    if "cls" not in launch:
        return Path(sys.executable)
    from benchmax.bundle import read_bundle_files

    bundle = await asyncio.to_thread(read_bundle_files, launch["cls"], launch["metadata"])
    return await install_packages(bundle, Path(launch["venvs"]), phase)


async def _work(python: Path, folder: Path, launch: Mapping[str, Any], variables: Mapping[str, str]) -> None:
    """Have the worker examine the environment, in a sandbox where there is one, and take its report over."""
    confined = await sandboxing.confinement()
    place = folder / "work"
    shutil.rmtree(place, ignore_errors=True)  # of an attempt before
    home = place / "home"
    home.mkdir(parents=True)
    place.chmod(0o711)  # for the user of a sandbox; to others the data folder is closed
    dump = home / "where"
    orders = {**launch, **_copied(launch, home), "report": str(home / REPORT_FILE), "dump": str(dump)}
    orders["memory_bytes"] = env_limits().memory_bytes
    async with _relayed(Redactor(variables.values())) as output, _sandbox(confined, python, place) as sandbox:
        with (
            _given(home / "orders", json.dumps(orders)) as stdin,
            _beats() as (beats, beating),
            sandboxing.reachable_models(confined) as models,
        ):
            told = {**scrubbed_environment(variables), **models, "TMPDIR": str(home)}
            start = Launch(str(python), str(home), told, beating, output, output, stdin, WORKER)
            child = await _child(start, confined, sandbox)
            os.close(beating)
            await _watched(child, beats, dump, folder, str(launch.get("spec") or "the environment"))
    if report := read_object(home / REPORT_FILE):
        write_object(folder / REPORT_FILE, report)


async def _child(start: Launch, confined: Confinement | None, sandbox: Sandbox | None) -> Child:
    if sandbox is None or confined is None:
        return PlainChild(start)
    await sandbox.start()
    if os.geteuid() == 0:
        for name in os.listdir(start.folder):
            os.chown(os.path.join(start.folder, name), sandbox.user, sandbox.user)
    return await start_sandboxed(sandbox, start, env_limits(), confined)


@asynccontextmanager
async def _sandbox(confined: Confinement | None, python: Path, place: Path) -> AsyncIterator[Sandbox | None]:
    if confined is None:
        yield None
        return
    read = (*code_paths(str(python)), *confined.read)
    sandbox = Sandbox(
        read=read, own=place, network=confined.network, insist=confined.insist, closed_ports=confined.closed_ports
    )
    try:
        yield sandbox
    finally:
        await sandbox.close()


def _copied(launch: Mapping[str, Any], home: Path) -> dict[str, str]:
    """The files the worker reads, where it may."""
    found = {}
    for name in ("cls", "metadata", "rows"):
        if isinstance(path := launch.get(name), str) and Path(path).is_file():
            found[name] = shutil.copyfile(path, home / f"{name}{Path(path).suffix}")
    return {name: str(path) for name, path in found.items()}


@contextmanager
def _given(path: Path, content: str) -> Iterator[int]:
    path.write_text(content, "utf-8")
    with open(path, "rb") as file:
        yield file.fileno()


@contextmanager
def _beats() -> Iterator[tuple[int, int]]:
    """A pipe; its writing end is closed by who has handed it on."""
    beats, beating = os.pipe()
    try:
        yield beats, beating
    finally:
        os.close(beats)


async def _watched(child: Child, beats: int, dump: Path, folder: Path, name: str) -> None:
    """Until the worker ends; one that holds its interpreter, or takes too long, is ended."""
    stalled = asyncio.create_task(asyncio.to_thread(_stalled, beats, child, asyncio.get_running_loop(), dump))
    both: list[asyncio.Future[Any]] = [child.ended, stalled]
    try:
        async with asyncio.timeout(SECONDS):
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if stalled.done() and (where := stalled.result()):
                held = held_interpreter(name, InterpreterHeld(where, STALL_SECONDS))
                write_object(folder / REPORT_FILE, held.to_dict())
                return
            await asyncio.shield(child.ended)
    except TimeoutError:
        raise UsageError(f"The examination did not end within {SECONDS:g} s. Make the environment faster.") from None
    finally:
        child.kill()
        await asyncio.wait(both)


def _stalled(beats: int, child: Child, loop: asyncio.AbstractEventLoop, dump: Path) -> str | None:
    """Where the worker is when its beats stop; None when it ends."""
    while True:
        ready, _, _ = select.select([beats], [], [], STALL_SECONDS)
        if not ready:
            return where_is(lambda: _ask(child, loop), dump)
        if not os.read(beats, 4096):
            return None


def _ask(child: Child, loop: asyncio.AbstractEventLoop) -> None:
    loop.call_soon_threadsafe(child.signal, signal.SIGUSR1)


@asynccontextmanager
async def _relayed(hide: Redactor) -> AsyncIterator[int]:
    """A pipe to print into: what comes goes to child.log, without secrets, however long a line is.

    It is not the process's own, whose end asyncio would wait for: what the environment left in the background holds it.
    """
    ours, theirs = os.pipe()
    words = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(words)
    pipe, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, os.fdopen(ours, "rb", 0))
    relaying = asyncio.create_task(_relay(words, hide))
    try:
        try:
            yield theirs
        finally:
            os.close(theirs)
        await asyncio.wait([relaying], timeout=LAST_WORDS_SECONDS)
    finally:
        relaying.cancel()
        pipe.close()


async def _relay(words: asyncio.StreamReader, hide: Redactor) -> None:
    """Whole lines where there are: a value must not be torn between two pieces."""
    kept = b""
    while piece := await words.read(65_536):
        whole, newline, kept = (kept + piece).rpartition(b"\n")
        if len(kept) > 65_536:
            whole, newline, kept = whole + newline + kept, b"", b""
        print(hide((whole + newline).decode("utf-8", "replace")), end="", flush=True)  # noqa: T201
    print(hide(kept.decode("utf-8", "replace")), end="", flush=True)  # noqa: T201


if __name__ == "__main__":
    main(examine_environment)
