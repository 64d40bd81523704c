"""The tool `run_python`: what code prints, and whether the examples of the question hold."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from benchmax import limits
from benchmax.envs.code.answers import defines
from benchmax.envs.code.reward import Case, same, written
from benchmax.envs.code.solution_runner import Outcome, Runner
from benchmax.sandbox import Result


async def run_python(runner: Runner, code: Any, name: str, examples: Sequence[Case]) -> str:
    """Text for the model; what it got wrong begins with `Error:`."""
    if not isinstance(code, str) or not code.strip():
        return "Error: code must be Python source, as text."
    if len(code) > limits.CODE_ANSWER_CHARS:
        return f"Error: the code is longer than {limits.CODE_ANSWER_CHARS:,} characters."
    if not name or not examples or not defines(code, name):
        return _printed(await runner.script(code))
    calls = runner.calls(code, name, [case.args for case in examples])
    result, outcomes = await asyncio.gather(runner.script(code), calls)
    tried = [_tried(name, case, got) for case, got in zip(examples, outcomes, strict=True)]
    return "\n".join([*([_printed(result)] if result.stdout or result.stderr else []), *tried])


def _printed(result: Result) -> str:
    ended = f"Error: ended by its {result.ended_by} limit." if result.ended_by else ""
    text = "\n".join(part.rstrip() for part in (result.stdout, result.stderr, ended) if part.strip())
    return text or "(nothing was printed)"


def _tried(name: str, case: Case, got: Outcome) -> str:
    call = f"{name}({', '.join(map(written, case.args))})"
    if got.failed:
        return f"{call}: {got.failed}"
    right = same(got.value, case.expected)
    return f"{call} == {written(got.value)}" + (", right" if right else f", not {written(case.expected)}")
