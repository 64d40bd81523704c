"""A solution's process: what a model wrote is run here, and its function called, one call at a time.

    in    {"code": source, "name": function}            once
          {"args": [...], "kwargs": {...}}              for each call
    out   {"value": data} or {"raised": type, "text": message}, a line for each line

There is nothing here to be found: no expected value, no later call's arguments, no comparison. Whatever the code does
to this process, its builtins or this module, only changes what it returns, and that is compared elsewhere.
"""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Callable
from typing import Any

from . import plain

MOST_TEXT = 200


def main() -> None:
    with open(plain.LINE, "rb", closefd=False) as given:
        start = plain.load(given.readline())
        defined: list[Any] = []
        _answer(lambda: defined.append(_function(start["code"], start["name"])))
        for line in given:
            _answer(lambda: _called(defined[0], plain.load(line)))  # noqa: B023 - called at once


def _function(source: str, name: str) -> Any:
    module = types.ModuleType("solution")
    sys.modules["solution"] = module
    exec(compile(source, "solution.py", "exec"), module.__dict__)  # noqa: S102 - what the sandbox is for
    function = getattr(module, name, None)
    if not callable(function):
        raise NameError(f"there is no function {name}")
    return function


def _called(function: Any, call: dict[str, Any]) -> Any:
    args = [plain.decode(each) for each in call["args"]]
    named = {name: plain.decode(each) for name, each in call["kwargs"].items()}
    return function(*args, **named)


def _answer(work: Callable[[], Any]) -> None:
    """Do it, and say what came of it. An exit is one: nothing more is said."""
    try:
        line = plain.dump({"value": plain.encode(work())})
    except (SystemExit, KeyboardInterrupt):
        os._exit(1)
    except BaseException as error:
        line = plain.dump({"raised": type(error).__name__, "text": _text(error)})
    plain.send(line)


def _text(error: BaseException) -> str:
    try:
        return str(error)[:MOST_TEXT].encode("utf-8", "replace").decode()
    except BaseException:
        return ""
