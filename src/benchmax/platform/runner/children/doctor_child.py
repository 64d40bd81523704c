"""The process that has an environment examined: it installs the packages and starts `doctor_worker` with them.

The environment's code runs only there, and in the environment's own process when a model is to try it.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from benchmax.doctor.findings import HOLDS, held_interpreter
from benchmax.doctor.interpreter_watch import STALL_SECONDS, InterpreterHeld, wait_for_end
from benchmax.envs.remote import Confinement
from benchmax.envs.remote.child import Child, Launch, PlainChild, start_sandboxed
from benchmax.envs.remote.output_lines import OutputLines
from benchmax.envs.remote.process_limits import code_paths, scrubbed_environment
from benchmax.errors import UsageError
from benchmax.files.redaction import Redactor
from benchmax.files.temp_dirs import remove_tree
from benchmax.platform.runner.children import sandboxing
from benchmax.platform.runner.children.child_files import REPORT_FILE, read_child_file, write_child_file
from benchmax.platform.runner.children.child_process import ChildProcess, main, write_log
from benchmax.platform.runner.children.run_environment import env_limits, install_packages
from benchmax.sandbox import Sandbox

WORKER = "benchmax.platform.runner.children.doctor_worker"
EXAMINATION_SECONDS = 600.0
"""For one examination."""
OUTPUT_SECONDS = 2.0
"""For what was printed before the end to be passed on."""


async def examine_environment(child: ChildProcess) -> str:
    """Have the environment examined; the worker leaves its report in the folder."""
    python = await _python(child)
    child.say("examining the environment")
    await _work(python, child.folder, child.launch, child.variables)
    said = read_child_file(child.folder / REPORT_FILE)
    if "problem" in said:
        raise UsageError(str(said["problem"]))
    if not said:
        raise UsageError("The environment's process left no report. Look for what ends it: os._exit, sys.exit.")
    if child.launch.get("model") and not any(each["check"] == HOLDS for each in said["findings"]):
        write_child_file(child.folder / REPORT_FILE, {**said, "signal": await _signal(python, child)})
    return "The examination is done."


async def _signal(python: Path, child: ChildProcess) -> dict[str, Any]:
    """Whether the model can learn from the environment, by its first samples."""
    from benchmax.bundle import read_bundle_files
    from benchmax.doctor.first_samples import first_samples
    from benchmax.envs.datasets.load import load_examples
    from benchmax.envs.loading import load_env_class, own_rows
    from benchmax.envs.remote import open_remote_env
    from benchmax.inference.local_model import LocalModel
    from benchmax.rollouts.host import EnvHost
    from benchmax.trainer.warm_start.known_rewards import known_to

    launch = child.launch
    child.say(f"letting {launch['model']} try")
    source = read_bundle_files(launch["cls"], launch["metadata"]) if "cls" in launch else launch["spec"]
    env = await open_remote_env(
        source, python=python, variables=child.variables, process_limits=env_limits(),
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


async def _python(child: ChildProcess) -> Path:
    """The interpreter to examine with: for a bundle, one with its packages."""
    launch = child.launch
    if "cls" not in launch:
        return Path(sys.executable)
    from benchmax.bundle import read_bundle_files

    bundle = await asyncio.to_thread(read_bundle_files, launch["cls"], launch["metadata"])
    return await install_packages(bundle, child)


async def _work(python: Path, folder: Path, launch: Mapping[str, Any], variables: Mapping[str, str]) -> None:
    """Have the worker examine the environment, in a sandbox where there is one, and take its report over."""
    confined = await sandboxing.confinement()
    place = folder / "work"
    remove_tree(place)  # of an attempt before
    home = place / "home"
    home.mkdir(parents=True)
    place.chmod(0o711)  # for the user of a sandbox; to others the data folder is closed
    dump = home / "where"
    orders = {**launch, **_copied(launch, home), "report": str(home / REPORT_FILE), "dump": str(dump)}
    orders["memory_bytes"] = env_limits().memory_bytes
    async with _relayed(Redactor(variables.values())) as output, _sandbox(confined, python, place) as sandbox:
        (home / "orders").write_text(json.dumps(orders), "utf-8")
        with (
            open(home / "orders", "rb") as stdin,  # noqa: ASYNC230 - a small file of our own
            _beats() as (beats, beating),
            sandboxing.reachable_models(confined) as models,
        ):
            environ = {**scrubbed_environment(variables), **models, "TMPDIR": str(home)}
            start = Launch(str(python), str(home), environ, beating, output, output, stdin.fileno(), WORKER)
            child = await _child(start, confined, sandbox)
            os.close(beating)
            await _watched(child, beats, dump, folder, str(launch.get("spec") or "the environment"))
    if report := read_child_file(home / REPORT_FILE):
        write_child_file(folder / REPORT_FILE, report)


async def _child(start: Launch, confined: Confinement | None, sandbox: Sandbox | None) -> Child:
    if sandbox is None or confined is None:
        return PlainChild(start)
    if os.geteuid() == 0:
        for name in os.listdir(start.folder):
            os.chown(os.path.join(start.folder, name), sandbox.user, sandbox.user)
    return await start_sandboxed(sandbox, start, env_limits(), confined)


def _sandbox(confined: Confinement | None, python: Path, place: Path) -> AbstractAsyncContextManager[Sandbox | None]:
    if confined is None:
        return nullcontext()
    read = (*code_paths(str(python)), *confined.read)
    return Sandbox(
        read=read, own=place, network=confined.network, insist=confined.insist, closed_ports=confined.closed_ports
    )


def _copied(launch: Mapping[str, Any], home: Path) -> dict[str, str]:
    """The files the worker reads, where it may."""
    given = {name: Path(launch[name]) for name in ("cls", "metadata", "rows") if isinstance(launch.get(name), str)}
    return {
        name: str(shutil.copyfile(path, home / f"{name}{path.suffix}"))
        for name, path in given.items()
        if path.is_file()
    }


@contextmanager
def _beats() -> Iterator[tuple[int, int]]:
    """A pipe; its writing end is closed by who has handed it on."""
    beats, beating = os.pipe()
    try:
        yield beats, beating
    finally:
        os.close(beats)


async def _watched(child: Child, beats: int, dump: Path, folder: Path, name: str) -> None:
    """Wait until the worker ends; one that holds its interpreter, or takes too long, is ended."""
    loop = asyncio.get_running_loop()

    def ask() -> None:
        loop.call_soon_threadsafe(child.signal, signal.SIGUSR1)

    stalled = asyncio.create_task(asyncio.to_thread(wait_for_end, beats, ask, dump, STALL_SECONDS))
    both: list[asyncio.Future[Any]] = [child.ended, stalled]
    try:
        async with asyncio.timeout(EXAMINATION_SECONDS):
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if stalled.done() and isinstance(held := stalled.exception(), InterpreterHeld):
                write_child_file(folder / REPORT_FILE, held_interpreter(name, held).to_dict())
                return
            await asyncio.wait([child.ended])
    except TimeoutError:
        raise UsageError(
            f"The examination did not end within {EXAMINATION_SECONDS:g} s. Make the environment faster."
        ) from None
    finally:
        child.kill()
        await asyncio.wait(both)


@asynccontextmanager
async def _relayed(hide: Redactor) -> AsyncIterator[int]:
    """A pipe to print into: its lines go to child.log, without secrets.

    It is not the process's own, whose end asyncio would wait for: what the environment left in the background holds it.
    """
    ours, theirs = os.pipe()
    lines = partial(OutputLines, lambda line: write_log(hide(line), sys.stdout))
    _, output = await asyncio.get_running_loop().connect_read_pipe(lines, os.fdopen(ours, "rb", 0))
    try:
        try:
            yield theirs
        finally:
            os.close(theirs)
        await asyncio.wait([output.closed], timeout=OUTPUT_SECONDS)
    finally:
        output.close()


if __name__ == "__main__":
    main(examine_environment)
