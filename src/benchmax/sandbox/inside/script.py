"""Python source, run in a forked interpreter as `python main.py` would, up to the end of the process.

The interpreter is not torn down: its modules are many, and the process is about to vanish.
"""

from __future__ import annotations

import atexit
import gc
import linecache
import os
import sys
import threading
import traceback
import types
from collections.abc import Mapping, Sequence
from typing import Any

NAME = "main.py"


def run(source: str, arguments: Sequence[str], variables: Mapping[str, str]) -> None:
    """Never returns."""
    os.environ.clear()
    os.environ.update(variables)
    sys.argv = [NAME, *arguments]
    sys.path.insert(0, os.getcwd())
    _renew()
    code = _status(source)
    try:
        threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as the interpreter does
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        code = code or 1
    os._exit(code)


def _status(source: str) -> int:
    main = types.ModuleType("__main__")
    main.__dict__.update({"__file__": NAME, "__builtins__": __builtins__})
    sys.modules["__main__"] = main
    linecache.cache[NAME] = (len(source), None, source.splitlines(True), NAME)
    try:
        exec(compile(source, NAME, "exec"), main.__dict__)  # noqa: S102 - what the sandbox is for
    except SystemExit as end:
        return _exit_code(end.code)
    except BaseException as error:
        _show(error)
        return 1
    return 0


def _exit_code(code: Any) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)  # noqa: T201 - as Python does
    return 1


def _show(error: BaseException) -> None:
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != NAME:
        trace = trace.tb_next
    traceback.print_exception(type(error), error, trace)


def _renew() -> None:
    """What was made for the parent: streams on its descriptors, seeds, and a collector that was held off."""
    gc.enable()
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        errors = "surrogateescape" if fd == 0 else "backslashreplace"
        mode, buffering = ("r", -1) if fd == 0 else ("w", 1 if fd == 2 else -1)
        stream = open(fd, mode, buffering, encoding="utf-8", errors=errors, closefd=False)  # noqa: SIM115
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
