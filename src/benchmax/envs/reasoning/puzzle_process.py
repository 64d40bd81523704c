"""The process in which reasoning-gym makes puzzles and scores answers: a line of JSON in, a line out.

{"make": {"task", "level", "settings", "seed", "rows"}}   → {"rows": […]} or {"error": "…"}
{"score": {"task", "answer", "entry"}}                    → {"score": 0.5} or {"error": "…"}

Covered
- Each answer is scored in a fork that the kernel ends when it takes too long or too much memory.
- Scorers of reasoning-gym hand answers to `eval` and to sympy, which evaluates them. Here `eval` reads literals only,
  and sympy sees nothing but numbers, operators, known functions and one-letter names: an answer is never executed.
- Puzzles are the same in every process: the order of sets does not depend on a random seed here.

Not covered: what reasoning-gym itself executes of its own data (`codeio`).
"""

from __future__ import annotations

import ast
import json
import re
import signal
import sys
import warnings
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import fields
from importlib import import_module
from math import isfinite
from typing import Any

from benchmax.envs.line_processes.child import apart, serve

MEMORY_BYTES = 4 * 2**30
FLOOR = 0.05
"""What some scorers pay for any text at all; it is taken for nothing."""
TRIES = 20
"""Puzzles made for each one that is wanted, before a task is taken to have no more different ones."""
COMMON = 0.2
"""The share of one answer from which on more puzzles are made, to choose from."""
MORE = 3
"""How many times as many."""
OTHERS = 3
"""Answers to other puzzles that are tried on each."""
LEVELS = {"easy": 0, "medium": 1, "hard": 2}
"""By the levels of the task's curriculum."""
WITHOUT_EASY = frozenset({"knight_swap", "sokoban"})
"""Tasks whose curriculum begins with settings that they refuse, or search for minutes."""
EVALUATED = (
    "algorithmic.string_insertion", "algorithmic.spiral_matrix", "algorithmic.binary_matrix",
    "algorithmic.number_sorting", "games.n_queens",
)  # fmt: skip
"""Modules that pass answers to `eval`."""
PARSED = ("games.puzzle24", "games.countdown")
"""Modules that imported sympy's `parse_expr` by name."""
_NO_NUMBER = re.compile(r"(?<![a-z])(?:nan|inf|infinity)[ij]?(?![a-z])", re.IGNORECASE)
_TOKEN = re.compile(r"\s*(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+|[A-Za-z]+|\*\*|[-+*/^()=,|])")
_NAMES = frozenset(
    {"sin", "cos", "tan", "sec", "csc", "cot", "asin", "acos", "atan", "sinh", "cosh", "tanh", "exp", "log", "ln",
     "sqrt", "Abs", "pi"}
)  # fmt: skip
_ENTRY_KEYS = ("question", "answer", "metadata")
_LABELS = frozenset({"true", "false", "yes", "no"})
"""Answers that are right or wrong: one scorer takes any text for `True`."""


# Scoring


def make_safe() -> None:
    """Replace what would execute an answer."""
    import sympy
    from sympy.parsing import sympy_parser

    parse = sympy_parser.parse_expr

    def checked(text: str, *args: Any, **kwargs: Any) -> Any:
        return parse(checked_expression(text), *args, **kwargs)

    sympy.parse_expr = sympy_parser.parse_expr = checked
    for name in PARSED:
        import_module(f"reasoning_gym.{name}").parse_expr = checked  # type: ignore[attr-defined]
    for name in EVALUATED:
        import_module(f"reasoning_gym.{name}").eval = ast.literal_eval  # type: ignore[attr-defined]


def checked_expression(text: str) -> str:
    """A mathematical expression as it is; ValueError for a text that is anything else."""
    at = 0
    text = str(text).strip()
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            raise ValueError("not an expression")
        word = token[0].strip()
        if word.isalpha() and len(word) > 1 and word not in _NAMES:
            raise ValueError("an unknown name")
        at = token.end()
    return text


def score(task: str, answer: str, entry: dict[str, Any]) -> float:
    """What an answer is worth, from 0 to 1."""
    truth = entry["answer"]
    if isinstance(truth, str):
        if answer.strip() == truth.strip():
            return 1.0
        if truth.strip().lower() in _LABELS:
            return float(answer.strip().lower() == truth.strip().lower())
    if is_exact(task) or not _uses_its_numbers(task, answer, entry) or _is_no_number(answer, truth):
        return 0.0
    try:
        value = float(_scorer(task).score_answer(answer, entry))
    except Exception:  # scorers raise whatever their parsing raises
        return 0.0
    value = min(1.0, max(0.0, value)) if isfinite(value) else 0.0
    return 0.0 if value <= FLOOR else value


def _is_no_number(answer: str, truth: Any) -> bool:
    """Whether an answer has a nan or an infinity where the puzzle's own has none: some scorers take them for near."""
    return bool(_NO_NUMBER.search(answer)) and not _NO_NUMBER.search(str(truth))


def _uses_its_numbers(task: str, answer: str, entry: dict[str, Any]) -> bool:
    """Whether an expression has the numbers of its puzzle; the scorer of puzzle24 takes any four."""
    if task != "puzzle24":
        return True
    return sorted(map(int, re.findall(r"\d+", answer)[:8])) == sorted(entry["metadata"]["numbers"])


def is_exact(task: str) -> bool:
    """Whether only the task's own answer is right. The scorer that such tasks share pays for any text that contains
    it, as a list of all answers does; that is not followed here."""
    from reasoning_gym.dataset import ProceduralDataset

    return type(_scorer(task)).score_answer is ProceduralDataset.score_answer


def _scorer(task: str) -> Any:
    from reasoning_gym.factory import DATASETS

    if task not in _SCORERS:
        dataset, config = DATASETS[task]
        _SCORERS[task] = dataset(config(seed=0, size=1))
    return _SCORERS[task]


_SCORERS: dict[str, Any] = {}


def score_apart(order: dict[str, Any], seconds: float) -> dict[str, Any]:
    """The same in a fork; one that fails, or is ended by the kernel, is worth nothing."""
    try:
        entry = read_entry(order["entry"])
        _scorer(order["task"])  # made here, so that forks have it
    except Exception as error:  # the row is at fault, not the answer
        return {"error": f"{type(error).__name__}: {error}"}
    return {"score": apart(lambda: score(order["task"], order["answer"], entry), seconds, MEMORY_BYTES) or 0.0}


def write_entry(entry: dict[str, Any]) -> str:
    """A puzzle as text. Python's own notation keeps tuples and keys that are numbers, which scorers compare."""
    kept = {key: entry[key] for key in _ENTRY_KEYS}
    try:
        text = repr(kept)
        if ast.literal_eval(text) == kept:
            return text
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        pass
    return "json:" + json.dumps(kept, default=str)


def read_entry(text: str) -> dict[str, Any]:
    """A puzzle as `write_entry` wrote it; raises for any other text."""
    found = json.loads(text[5:]) if text.startswith("json:") else ast.literal_eval(text)
    return {key: found[key] for key in _ENTRY_KEYS}


# Making


def make(order: dict[str, Any]) -> dict[str, Any]:
    """Different puzzles of a task, the same for the same order; fewer where the task has no more."""
    task, wanted = order["task"], int(order["rows"])
    entries = _entries(_dataset(task, order["level"], dict(order["settings"]), int(order["seed"]), wanted), wanted)
    found = _different(task, entries, wanted, {})
    if _largest_share(found.values()) > COMMON:
        found = _different(task, entries, MORE * wanted, found)
    rows = _balanced(list(found.values()))[:wanted]
    for index, row in enumerate(rows):
        others = [each["answer"] for each in rows[index + 1 : index + 1 + OTHERS] if "answer" in each]
        if floor := _floor(row, others):
            row["floor"] = floor
    return {"rows": rows}


def _different(
    task: str, entries: Iterator[dict[str, Any]], wanted: int, found: dict[str, dict[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Rows by their question, until there are enough."""
    while len(found) < wanted and (entry := next(entries, None)) is not None:
        row = _row(task, entry)
        if row is not None:
            found.setdefault(row["question"], row)
    return found


def _largest_share(rows: Collection[dict[str, Any]]) -> float:
    """The share of rows that have the most frequent answer."""
    counts = Counter(row.get("answer") for row in rows if "answer" in row)
    return max(counts.values(), default=0) / max(1, len(rows))


def _balanced(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows in an order in which no answer is more frequent at the beginning than it has to be."""
    seen: Counter[str] = Counter()
    places = []
    for row in rows:
        places.append(seen[row.get("answer", "")])
        seen[row.get("answer", "")] += 1
    if max(places, default=0) <= COMMON * len(rows):
        return rows
    return [row for _, row in sorted(zip(places, rows, strict=True), key=lambda pair: pair[0])]


def _floor(row: dict[str, Any], others: Sequence[str]) -> float:
    """What answers to other puzzles earn on this one, where they are not right: it is paid for no understanding."""
    if "exact" in row or "answer" not in row:
        return 0.0
    entry = read_entry(row["entry"])
    paid = [score(row["task"], each, entry) for each in others if each != row["answer"]]
    return max((each for each in paid if each < 1.0), default=0.0)


def _dataset(task: str, level: str, settings: dict[str, Any], seed: int, rows: int) -> Any:
    from reasoning_gym.factory import CURRICULA, DATASETS, create_curriculum

    dataset, config = DATASETS[task]
    _check_settings(config, settings)
    size = {"seed": seed, "size": rows * TRIES}
    if level == "default" or task not in CURRICULA or (level == "easy" and task in WITHOUT_EASY):
        return dataset(config(**size, **settings))
    curriculum = create_curriculum(task)
    for attribute in curriculum.attributes.values():
        curriculum.set_attr_level(attribute.name, min(LEVELS[level], len(attribute.levels) - 1))
    made = curriculum.generate_configuration(size)
    for name, value in settings.items():
        setattr(made, name, value)
    return dataset(made)


class _BadSetting(ValueError):
    """What a person can correct; the text says it all."""


def _check_settings(config: Any, settings: dict[str, Any]) -> None:
    known = {each.name: each.default for each in fields(config) if each.name not in ("seed", "size")}
    for name, value in settings.items():
        if name not in known:
            raise _BadSetting(f"it has no setting {name!r}; its settings are {', '.join(known)}")
        kind = type(known[name])
        fits = type(value) is kind or (kind is float and type(value) is int)
        if kind in (bool, int, float, str) and not fits:
            raise _BadSetting(f"{name} takes {kind.__name__}, such as {known[name]!r}, and not {value!r}")


def _entries(dataset: Any, wanted: int) -> Iterator[dict[str, Any]]:
    """Puzzles one after another; a set that only some indices fail on goes on with the others."""
    failures = 0
    for index in range(wanted * TRIES):
        try:
            yield dataset[index]
        except Exception:
            failures += 1
            if failures > wanted:
                raise


def _row(task: str, entry: dict[str, Any]) -> dict[str, Any] | None:
    """A row, with an answer that is known to be right where there is one."""
    kept = read_entry(write_entry(entry))
    answer = next((each for each in _answers(entry) if each and score(task, each, kept) >= 1.0), None)
    if answer is None and entry["answer"] is not None:
        return None  # its scorer refuses its own answer, or that is empty: no model could give it
    row: dict[str, Any] = {"task": task, "question": str(entry["question"]).strip(), "entry": write_entry(entry)}
    if answer is not None:
        row["answer"] = answer
    if is_exact(task):
        row["exact"] = True
    return row


def _answers(entry: dict[str, Any]) -> Iterator[str]:
    """Texts that should solve a puzzle."""
    metadata = entry["metadata"]
    for found in (entry["answer"], metadata.get("example_answer"), metadata.get("example_correct_answer")):
        if found is not None:
            yield str(found).strip()
    if (possible := metadata.get("possible_answer")) is not None:
        yield json.dumps(possible)


# The process


def _load() -> None:
    warnings.simplefilter("ignore")
    import reasoning_gym  # noqa: F401

    make_safe()


def _answer(message: dict[str, Any]) -> dict[str, Any]:
    score_seconds, make_seconds = map(float, sys.argv[1:3])
    if "score" in message:
        return score_apart(message["score"], score_seconds)
    return _made(message["make"], make_seconds)


class _TooSlow(BaseException):
    """Not an Exception, which code that makes puzzles catches."""


def _made(order: dict[str, Any], seconds: float) -> dict[str, Any]:
    def too_slow(*_: Any) -> None:
        raise _TooSlow

    signal.signal(signal.SIGPROF, too_slow)
    signal.setitimer(signal.ITIMER_PROF, seconds, 1.0)
    try:
        return make(order)
    except _TooSlow:
        return {"error": f"these puzzles take longer than {seconds:g} s to make"}
    except (_BadSetting, AssertionError) as error:  # reasoning-gym asserts that settings fit together
        return {"error": str(error)}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, signal.SIG_DFL)


if __name__ == "__main__":
    serve(_load, _answer)
