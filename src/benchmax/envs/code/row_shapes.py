"""A function to write and its tests, out of the columns that sets of programming tasks have.

| rows like | question | function | tests | solution |
| --- | --- | --- | --- | --- |
| generated, own | `prompt` | `entry_point` | `tests`: `[{"args": [1], "expected": 2}]`, or as JSON | `solution` |
| MBPP | `text`, `prompt` | in the asserts | `test_list`, after `test_setup_code` or `test_imports` | `code` |
| HumanEval | `prompt` | `entry_point` | `test`, which defines `check` | `canonical_solution` |
| MBPP+ | `prompt` | in the asserts | `test` | `code` |

Of MBPP the first assert is shown in the question, for its text does not name the function; the others are hidden.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Mapping
from typing import Any

from benchmax.envs.code.reward import cases_to_text, read_cases
from benchmax.errors import UsageError

_CALLED = re.compile(r"(?<![\w.])([A-Za-z_]\w*)\s*\(")
_DEFINED = re.compile(r"^def +([A-Za-z_]\w*)", re.MULTILINE)
_ASSERT = re.compile(r"^[ \t]*assert\b", re.MULTILINE)
_NEVER_ASKED_FOR = frozenset({*dir(builtins), "assert", "not", "and", "or", "in", "is", "isclose"})
TEST_COLUMNS = "tests (with entry_point), test_list, or test (with entry_point)"


def question_of(row: Mapping[str, Any]) -> str:
    text = _text(row, "prompt") or _text(row, "text") or _text(row, "question")
    if not text:
        raise UsageError("A row needs a question in the column prompt or text. Rename or add one.")
    if row.get("tests") is not None:
        return text
    if asserts := _asserts(row):
        return f"{text.strip()}\nThe function is {name_of(row)}. An example:\n{asserts[0]}"
    return f"Complete this function:\n```python\n{text.rstrip()}\n```"


def name_of(row: Mapping[str, Any]) -> str:
    """The function that is asked for."""
    if name := _text(row, "entry_point").strip():
        if not name.isidentifier():
            raise UsageError(f"entry_point is {name!r}, which is no name of a function. Give the name alone.")
        return name
    called = [name for each in _asserts(row) for name in _CALLED.findall(each) if name not in _NEVER_ASKED_FOR]
    written = _DEFINED.findall(_text(row, "code"))
    if name := next((each for each in called if each in written), called[0] if called else ""):
        return name
    raise UsageError("A row does not name its function. Add the column entry_point.")


def tests_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """The hidden tests, as `cases`, or as `asserts` with what comes before them."""
    if row.get("tests") is not None:
        return {"cases": _cases(row["tests"])}
    source, asserts = _text(row, "test"), _asserts(row)
    if asserts and not source:
        source = "\n".join(asserts[1:] or asserts)
    if not _ASSERT.search(source):
        raise UsageError(f"A row has no tests that are known here. Its columns must be {TEST_COLUMNS}; stdin is not.")
    checks = f"\ncheck({name_of(row)})" if re.search(r"^def check\(", source, re.MULTILINE) else ""
    return {"asserts": source + checks, "setup": _setup(row) if asserts else prefix_of(row)}


def _setup(row: Mapping[str, Any]) -> str:
    imports = row.get("test_imports") or []
    return "\n".join([*map(str, imports if isinstance(imports, list) else [imports]), _text(row, "test_setup_code")])


def prefix_of(row: Mapping[str, Any]) -> str:
    """What a solution may leave out: the imports, helpers and head that the question shows."""
    if row.get("tests") is not None or _asserts(row):
        return ""
    head = _text(row, "prompt").rstrip()
    return f"{head}\n    pass\n" if head.endswith(":") else f"{head}\n"


def solution_of(row: Mapping[str, Any]) -> str | None:
    """A solution that runs by itself, if the row has one."""
    if whole := _text(row, "solution") or _text(row, "code"):
        return whole
    body = _text(row, "canonical_solution")
    return _text(row, "prompt") + body if body else None


def _asserts(row: Mapping[str, Any]) -> list[str]:
    listed = [*(row.get("test_list") or ()), *(row.get("challenge_test_list") or ())]
    return [str(each).strip() for each in listed if _ASSERT.match(str(each))]


def _cases(given: Any) -> str:
    try:
        cases = read_cases(given)
    except (ValueError, TypeError):
        cases = []
    if not cases:
        raise UsageError('`tests` holds no cases. Write [{"args": [1, 2], "expected": 3}, …], as a list or as JSON.')
    return cases_to_text(cases)


def _text(row: Mapping[str, Any], column: str) -> str:
    value = row.get(column)
    return value if isinstance(value, str) else ""
