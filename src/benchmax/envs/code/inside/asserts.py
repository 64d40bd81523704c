"""Assert statements of a row, run in a process in which nothing of the solution runs.

    in    {"setup": source, "tests": source, "name": function}     once
          what the solution's process said, for each call
    out   {"call": {"args": [...], "kwargs": {...}}}                whenever the function is called
          {"held": 3, "failed": 0, "error": "", "unfit": ""}        at the end

The function is a stand-in that asks for every call; what comes back is plain data made anew here. Each assert counts by
itself: one that fails does not end the others. Asserts of a constant count nothing.
"""

from __future__ import annotations

import ast
from typing import Any, BinaryIO

from . import plain

NAMES = ("candidate",)
"""What tests call the function, besides its own name."""
_HOLDS, _BREAKS = "assertion_holds_", "assertion_breaks_"
_RAISED = {
    kind.__name__: kind
    for kind in (
        ArithmeticError, AssertionError, AttributeError, IndexError, KeyError, LookupError, NotImplementedError,
        OverflowError, RecursionError, TypeError, ValueError, ZeroDivisionError,
    )
}  # fmt: skip
"""What a solution raises is raised here by name. All others are RuntimeErrors: StopIteration would end a loop of the
tests early, and NameError and ImportError are theirs."""


class _End(BaseException):
    """The tests cannot go on."""


class Tally:
    """How many asserts held, and what else happened."""

    def __init__(self) -> None:
        self.held = self.failed = 0
        self.error = self.unfit = ""

    def holds(self, outcome: Any) -> None:
        if outcome:
            self.held += 1
        else:
            self.failed += 1

    def breaks(self, error: BaseException) -> None:
        self.failed += 1
        if isinstance(error, NameError):  # the solution's own would have another type
            self.unfit = f"they use {error.name!r}, which they do not define"
        if isinstance(error, ImportError):
            self.unfit = f"they need the package {error.name!r}, which is not installed"


def main() -> None:
    with open(plain.LINE, "rb", closefd=False) as given:
        start = plain.load(given.readline())
        tally = Tally()
        try:
            _run(start, tally, given)
        except _End as end:
            tally.error = tally.error or str(end)
        except BaseException as error:
            tally.error = f"{type(error).__name__}: {error}"[:200]
            tally.breaks(error)
        plain.send(plain.dump(vars(tally)))


def _run(start: dict[str, Any], tally: Tally, given: BinaryIO) -> None:
    space: dict[str, Any] = {"__name__": "tests"}
    exec(compile(start["setup"], "setup.py", "exec"), space)  # noqa: S102 - in the sandbox
    function = _stand_in(tally, given)
    space.update(dict.fromkeys((start["name"], *NAMES), function))
    space.update({_HOLDS: tally.holds, _BREAKS: tally.breaks})
    tree = ast.fix_missing_locations(_Counted().visit(ast.parse(start["tests"])))
    exec(compile(tree, "tests.py", "exec"), space)  # noqa: S102 - in the sandbox


class _Counted(ast.NodeTransformer):
    """Asserts become counts."""

    def visit_Assert(self, node: ast.Assert) -> Any:
        if isinstance(node.test, ast.Constant) and node.test.value:
            return ast.copy_location(ast.Pass(), node)
        form = f"try:\n    {_HOLDS}(0)\nexcept Exception as error_:\n    {_BREAKS}(error_)"
        counted: Any = ast.parse(form).body[0]
        counted.body[0].value.args = [node.test]
        return ast.copy_location(counted, node)


def _stand_in(tally: Tally, given: BinaryIO) -> Any:
    def function(*args: Any, **kwargs: Any) -> Any:
        try:
            named = {name: plain.encode(each) for name, each in kwargs.items()}
            plain.send(plain.dump({"call": {"args": [plain.encode(each) for each in args], "kwargs": named}}))
        except plain.NotPlain as error:
            tally.unfit = f"they pass {error}"
            raise _End("no plain data") from None
        return _outcome(given.readline())

    return function


def _outcome(line: bytes) -> Any:
    try:
        said = plain.load(line)
        if "raised" not in said:
            return plain.decode(said["value"])
        kind, text = str(said["raised"]), str(said.get("text"))
    except (plain.NotPlain, KeyError):
        raise _End("the solution's process ended") from None
    raise _RAISED.get(kind, RuntimeError)(text)
