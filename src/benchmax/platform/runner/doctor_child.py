"""The process that sees to an examination: it makes the environment's packages ready, and starts `doctor_worker` with
them. The environment's code runs only there.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from benchmax.errors import UsageError
from benchmax.platform.runner.child import Phase, env_limits, main
from benchmax.platform.runner.notes import LAUNCH_FILE, hidden, hide, read_note

WORKER = "benchmax.platform.runner.doctor_worker"
SECONDS = 600.0
"""For one examination."""
LAST_WORDS_SECONDS = 2.0
"""For what was printed before the end to be passed on."""


async def examine_environment(folder: Path, word: Mapping[str, Any], phase: Phase) -> str:
    """Have the environment examined; the worker leaves its report in the folder."""
    launch = read_note(folder / LAUNCH_FILE)
    variables: Mapping[str, str] = word.get("variables", {})
    python = await _python(launch, phase)
    phase.say("examining the environment")
    await _work(python, folder, launch, variables)
    said = read_note(folder / "report.json")
    if "problem" in said:
        raise UsageError(str(said["problem"]))
    if not said:
        raise UsageError("The environment's process left no report. Look for what ends it: os._exit, sys.exit.")
    return "The examination is done."


async def _python(launch: Mapping[str, Any], phase: Phase) -> Path:
    """The interpreter to examine with: for a bundle, one with its packages."""
    if "cls" not in launch:
        return Path(sys.executable)
    from benchmax.bundle import envs_venv
    from benchmax.bundle.metadata import BundleMetadata

    text = await asyncio.to_thread(Path(launch["metadata"]).read_bytes)
    metadata = BundleMetadata.from_json_bytes(text)
    if metadata.pip_dependencies:
        phase.say("installing the environment's packages")
    return await asyncio.to_thread(envs_venv, metadata, Path(launch["venvs"]))


async def _work(python: Path, folder: Path, launch: Mapping[str, Any], variables: Mapping[str, str]) -> None:
    from benchmax.envs.remote.surroundings import scrubbed_environment

    home = folder / "home"
    home.mkdir(exist_ok=True)
    most = env_limits().memory_bytes
    orders = json.dumps({**launch, "report": str(folder / "report.json"), "memory_bytes": most}).encode()
    async with _relayed(hidden(variables.values())) as output:
        process = await asyncio.create_subprocess_exec(
            str(python), "-P", "-m", WORKER, cwd=home, env={**scrubbed_environment(variables), "TMPDIR": str(home)},
            stdin=asyncio.subprocess.PIPE, stdout=output, stderr=output,
        )  # fmt: skip
        try:
            await asyncio.wait_for(process.communicate(orders), SECONDS)
        except TimeoutError:
            raise UsageError(
                f"The examination did not end within {SECONDS:g} s. Make the environment faster."
            ) from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


@asynccontextmanager
async def _relayed(secrets: list[str]) -> AsyncIterator[int]:
    """A pipe to print into: what comes goes to child.log, without secrets, however long a line is.

    It is not the process's own, whose end asyncio would wait for: what the environment left in the background holds it.
    """
    ours, theirs = os.pipe()
    words = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(words)
    pipe, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, os.fdopen(ours, "rb", 0))
    relaying = asyncio.create_task(_relay(words, secrets))
    try:
        try:
            yield theirs
        finally:
            os.close(theirs)
        await asyncio.wait([relaying], timeout=LAST_WORDS_SECONDS)
    finally:
        relaying.cancel()
        pipe.close()


async def _relay(words: asyncio.StreamReader, secrets: list[str]) -> None:
    while piece := await words.read(65_536):
        print(hide(piece.decode("utf-8", "replace"), secrets), end="", flush=True)  # noqa: T201


if __name__ == "__main__":
    main(examine_environment)
