"""The other side of `LineProcesses`: a script that loads what it needs once, and answers line by line.

def answer(message):
    return {"same": bool(apart(lambda: same(**message), seconds=1.0, memory_bytes=2 * 2**30))}

if __name__ == "__main__":
    serve(load, answer)
"""

from __future__ import annotations

import gc
import json
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable
from typing import Any


def serve(load: Callable[[], None], answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Answer the lines of standard input; if `load` does not find a package, the only line names it."""
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints must not look like an answer
    logging.disable(logging.CRITICAL)

    def say(message: dict[str, Any]) -> None:
        channel.write(json.dumps(message) + "\n")
        channel.flush()

    try:
        load()
    except ImportError as error:
        say({"missing": error.name})
        return
    gc.collect()
    gc.freeze()  # forks share what was loaded
    say({"ready": True})
    for line in sys.stdin:
        say(answer(json.loads(line)))


def apart(work: Callable[[], Any], seconds: float, memory_bytes: int) -> Any:
    """What `work` returns in a fork, as JSON; None when it fails, or when a limit ends it."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _work_and_end(work, writing, seconds, memory_bytes)
    os.close(writing)
    with os.fdopen(reading, "rb") as result:
        text = result.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else None


def _work_and_end(work: Callable[[], Any], writing: int, seconds: float, memory_bytes: int) -> None:
    try:
        # Processor time, so that a busy machine makes no answer wrong; and a wall clock, should it only wait.
        signal.setitimer(signal.ITIMER_PROF, seconds)
        signal.setitimer(signal.ITIMER_REAL, 10 * seconds)
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        os.write(writing, json.dumps(work()).encode())
    finally:
        os._exit(0)
