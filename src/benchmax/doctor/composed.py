"""The diagnosis of a composed environment: each part is examined as if it were alone, on its own rows.

A part must be sound by itself, and what is found there says what to do. Findings carry the part's name.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

from benchmax.doctor.findings import CheckLine, Diagnosis, State, by_severity, error
from benchmax.envs.composed.composed_env import ComposedEnv
from benchmax.envs.composed.parts import part_of_row
from benchmax.envs.datasets.readers import Source, read_rows

ExaminePart = Callable[[str, list[Any], list[Any] | None], Awaitable[Diagnosis]]
"""Examines one part on its rows and its held-out rows."""
UNKNOWN = "unknown-part"


async def examine_parts(
    env_class: type[ComposedEnv], rows: Source, eval_rows: Source | None, examine: ExaminePart
) -> Diagnosis:
    """Examine every part, and put together what was found."""
    own, strange = _by_part(env_class, rows)
    held_out = None if eval_rows is None else _by_part(env_class, eval_rows)[0]
    found = {
        part: await examine(part, own[part], None if held_out is None else held_out[part]) for part in env_class.parts
    }
    diagnosis = _together(env_class.__name__, found)
    if strange:
        fix = f"Name one of {', '.join(env_class.parts)} in the column `env` of every row."
        title = f"{len(strange)} rows name no part of this environment."
        diagnosis.findings.insert(0, error(title, "; ".join(strange[:3]), fix, check=UNKNOWN))
        diagnosis.checks.insert(0, CheckLine(UNKNOWN, "rows name a part", "error"))
    return diagnosis


def _by_part(env_class: type[ComposedEnv], rows: Source) -> tuple[dict[str, list[Any]], list[str]]:
    """The rows of each part as the part reads them, and where there are rows of none."""
    own: dict[str, list[Any]] = {part: [] for part in env_class.parts}
    strange: list[str] = []
    for row in read_rows(rows):
        part = part_of_row(row.data) if row.fault is None else ""
        if part in own:
            own[part].append(ComposedEnv.own_row(row.data))
        else:
            strange.append(f"row {row.number}: {row.fault.reason if row.fault else repr(part)}")
    return own, strange


def _together(name: str, found: Mapping[str, Diagnosis]) -> Diagnosis:
    whole = Diagnosis(name)
    for part, diagnosis in found.items():
        whole.findings += [replace(each, title=f"{part}: {each.title}") for each in diagnosis.findings]
        whole.components += [replace(each, name=f"{part}/{each.name}") for each in diagnosis.components]
        whole.answers += diagnosis.answers
        whole.rows, whole.examples = whole.rows + diagnosis.rows, whole.examples + diagnosis.examples
        whole.seconds += diagnosis.seconds
    whole.findings = by_severity(whole.findings)
    whole.checks = _worst([line for diagnosis in found.values() for line in diagnosis.checks])
    return whole


def _worst(lines: Sequence[CheckLine]) -> list[CheckLine]:
    """Each check once, as it went where it went worst."""
    worst: dict[str, CheckLine] = {}
    for line in lines:
        worst[line.id] = max(worst.get(line.id, line), line, key=lambda each: get_args(State).index(each.state))
    return list(worst.values())
