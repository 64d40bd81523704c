"""`validate_env`: the doctor, as one call before a run.

It plays the whole life of the environment on several rows (`init_rollout` and `release_rollout` too), scores the gold
answer and what a model may try instead, and prints one line for each check. A reward that never changes fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain, islice
from os import PathLike
from types import ModuleType
from typing import Any

from benchmax import limits
from benchmax.concurrency import run_sync
from benchmax.doctor import Diagnosis, examine_sync
from benchmax.doctor.findings import MARKS
from benchmax.doctor.quoting import quote
from benchmax.envs.base_env import BaseEnv, overrides
from benchmax.envs.datasets.readers import Source, read_rows
from benchmax.envs.datasets.rows import json_type
from benchmax.envs.loading import is_env_class
from benchmax.errors import BenchmaxError, EnvDefinitionError, UsageError, describe_error
from benchmax.platform.sdk.rollout_client import ExampleValidation, RolloutClient
from benchmax.rollouts.host import EnvHost

_NO_ROWS: tuple[Any, ...] = ()
_GROUP_CHECKS = (
    "cannot-construct", "init-fails", "reward-not-finite", "group-reward-raises", "group-reward-wrong-length",
    "group-reward-duplicate-key",
)  # fmt: skip


@dataclass(slots=True)
class ValidationReport:
    """How validation went. True only if something ran and all of it passed."""

    local_passed: int = 0
    local_failed: int = 0
    remote: dict[str, Any] | None = None
    local_ran: bool = False
    remote_ran: bool = False
    diagnosis: Diagnosis | None = field(default=None, repr=False)
    """Every finding of the local checks, with evidence and fix; too much to print with the report."""

    @property
    def local_ok(self) -> bool:
        return self.local_ran and self.local_failed == 0

    @property
    def remote_ok(self) -> bool:
        return self.remote_ran and bool((self.remote or {}).get("ok"))

    @property
    def ok(self) -> bool:
        ran = [part for part, did in ((self.local_ok, self.local_ran), (self.remote_ok, self.remote_ran)) if did]
        return bool(ran) and all(ran)

    def __bool__(self) -> bool:
        return self.ok

    def summary(self) -> str:
        parts = []
        if self.local_ran:
            parts.append(f"local {self.local_passed}/{self.local_passed + self.local_failed} checks")
        if self.remote_ran:
            parts.append(f"remote {'passed' if self.remote_ok else 'failed'}")
        return f"validate_env {'passed' if self.ok else 'failed'}: {', '.join(parts) or 'nothing ran'}"


def validate_env(
    env_class: type[BaseEnv],
    env_args: dict[str, Any] | Source | None = None,
    train_dataset: Source = _NO_ROWS,
    eval_dataset: Source | None = None,
    *,
    local_modules: Sequence[ModuleType | str] | None = None,
    pip_dependencies: Sequence[str] | None = None,
    local: bool = True,
    api_key: str | None = None,
    base_url: str | None = None,
    llm_base_url: str | None = None,
    llm_api_key: str | None = None,
    remote_examples: int = 2,
    group_reward_samples: int = 2,
    llm_model: str | None = None,
    max_turns: int = 4,
    max_tool_calls: int = 8,
    verbose: bool = True,
    full_messages: bool = False,
) -> ValidationReport:
    """Check an environment and its rows before a run; works in scripts and notebooks.

    An environment without arguments may be followed by its rows at once: `validate_env(MyEnv, train, held_out)`.
    With `api_key`, or `local` off, the first `remote_examples` rows are also played on a platform, by the model at
    `llm_base_url` or, without one, by a model of the platform's own machine. `local_modules`, `pip_dependencies` and
    the `llm_…` and `remote_…` arguments concern that part. With `full_messages`, every answer that was scored is
    printed.
    """
    if not is_env_class(env_class):
        raise EnvDefinitionError(
            f"validate_env takes an environment class, and {env_class!r:.80} is none. Give the class, and its "
            "arguments as env_args."
        )
    arguments, *datasets = _arguments_and_rows(env_args, train_dataset, eval_dataset)
    # Both parts read the rows, which an iterator yields only once.
    train_dataset, held_out = (list(each) if isinstance(each, Iterator) else each for each in datasets)
    eval_dataset = None if held_out is _NO_ROWS else held_out
    report = ValidationReport()
    say: Callable[[str], None] = print if verbose else lambda line: None
    if local:
        diagnosis = examine_sync(
            env_class,
            arguments,
            rows=train_dataset,
            eval_rows=eval_dataset,
            group_samples=group_reward_samples,
            max_turns=max_turns,
            max_tool_calls=max_tool_calls,
        )
        _add_local_checks(report, diagnosis, say, full_messages)
    if api_key or not local:
        llm = {"llm_base_url": llm_base_url, "llm_api_key": llm_api_key or ""}
        report.remote = remote_checks(
            lambda: RolloutClient(api_key, base_url),
            first_rows(train_dataset, eval_dataset, remote_examples),
            say,
            env_class=env_class,
            constructor_args=arguments,
            pip_dependencies=pip_dependencies,
            local_modules=local_modules,
            group_reward_samples=group_reward_samples,
            full_messages=full_messages,
            max_turns=max_turns,
            max_tool_calls=max_tool_calls,
            **(llm | ({"llm_model": llm_model} if llm_model else {})),
        )
        report.remote_ran = True
    say(report.summary())
    return report


def _arguments_and_rows(env_args: Any, *datasets: Any) -> tuple[Any, ...]:
    """Arguments and datasets; the first dataset may be passed in place of the arguments."""
    if env_args is None or isinstance(env_args, Mapping):
        return env_args, *datasets
    is_rows = isinstance(env_args, str | PathLike | Iterable)
    if not is_rows or not (datasets[-1] is None or datasets[-1] is _NO_ROWS):
        raise UsageError(
            f"env_args is {json_type(env_args)}. Give the constructor's arguments as a dict or None, then the rows."
        )
    return None, env_args, *datasets[:-1]


def first_rows(train: Source, held_out: Source | None, count: int) -> list[Any]:
    """The first training rows, and held-out ones when those are too few."""
    rows = chain(read_rows(train), read_rows(held_out or ()))
    return [row.data for row in islice(rows, count)]


def remote_checks(
    connect: Callable[[], RolloutClient], rows: Sequence[Any], say: Callable[[str], None], **options: Any
) -> dict[str, Any]:
    """Play the first rows on the platform as a run would: `{"ok", "examples", "group_reward", "error"}`."""
    try:
        if not rows:
            raise UsageError(
                "There are no rows to play. Check the dataset, and that one example or more is to be played."
            )
        with connect() as client:
            result = client.validate_examples(rows, n=len(rows), verbose=False, **options)
    except BenchmaxError as error:
        say(f"{MARKS['error']} played on the platform\n    {error}")
        return {"ok": False, "examples": [], "group_reward": None, "error": str(error)}
    for part in result.examples:
        _say_part(say, f"example {part.index} played on the platform", part, options["full_messages"])
    if result.group_reward is not None:
        _say_part(say, "a group scored on the platform", result.group_reward, False)
    parts = [asdict(part) for part in result.examples]
    group = None if result.group_reward is None else asdict(result.group_reward)
    return {"ok": result.ok, "examples": parts, "group_reward": group, "error": None}


def _say_part(say: Callable[[str], None], title: str, part: ExampleValidation, full_messages: bool) -> None:
    scores = ", ".join(f"{name} {value:g}" for name, value in part.rewards.items())
    say(f"{MARKS['passed' if part.ok else 'error']} {title}" + (f" ({scores})" if scores else ""))
    if part.error:
        say(f"    {part.error}")
    for message in part.messages if full_messages else ():
        say(f"    {message['role']}: {quote(str(message.get('content') or message.get('tool_calls') or ''))}")


def _add_local_checks(
    report: ValidationReport, diagnosis: Diagnosis, say: Callable[[str], None], full_messages: bool
) -> None:
    """Count the local checks and print them."""
    report.diagnosis, report.local_ran = diagnosis, True
    report.local_failed = len(diagnosis.failed)
    report.local_passed = len(diagnosis.checks) - len(diagnosis.skipped) - report.local_failed
    for line in [*check_lines(diagnosis), *(answer_lines(diagnosis) if full_messages else ())]:
        say(line)


def check_lines(diagnosis: Diagnosis) -> list[str]:
    """One line for each check (✓ passed, ✗ failed, ! a warning, - skipped), with what was found under it."""
    lines = []
    for check in diagnosis.checks:
        mark = MARKS["passed" if check.state == "info" else check.state]
        lines.append(f"{mark} {check.title}" + (f" ({check.note})" if check.note else ""))
        lines += [f"    {finding.text()}" for finding in diagnosis.find(check.id) if finding.severity != "info"]
    return lines


def problem_lines(diagnosis: Diagnosis) -> list[str]:
    """The same for the checks alone that found an error or something to warn of."""
    return [line for line in check_lines(diagnosis) if line[0] not in (MARKS["passed"], MARKS["skipped"])]


def answer_lines(diagnosis: Diagnosis) -> list[str]:
    """Every answer that was played, what it was asked, and what it earned."""
    lines = []
    for each in diagnosis.answers:
        parts = ", ".join(f"{name}={value:g}" for name, value in each.rewards.items()) or each.note or "no score"
        lines.append(
            f"  {each.probe}: {quote(each.question)} → {quote(each.answer)} (gold {quote(each.gold)}): {parts}"
        )
    return lines


# Parts that can be called alone


def overrides_compute_group_reward(env_class: type[BaseEnv] | BaseEnv) -> bool:
    """Whether the environment scores siblings against one another."""
    return overrides(env_class, "compute_group_reward")


def overrides_validate_probe(env_class: type[BaseEnv] | BaseEnv) -> bool:
    """Whether the environment brings a check of its own."""
    return overrides(env_class, "validate_probe")


def run_validate_probe(
    env_class: type[BaseEnv], env_args: dict[str, Any] | Source | None = None, eval_dataset: Source = _NO_ROWS
) -> dict[str, Any] | None:
    """What the environment's own `validate_probe` says; None if it has none. It never raises."""
    if not overrides_validate_probe(env_class):
        return None
    try:
        arguments, eval_dataset = _arguments_and_rows(env_args, eval_dataset)
        rows = [row.data for row in read_rows(eval_dataset)]
        return run_sync(_probe(env_class, arguments or {}, rows))
    except Exception as error:
        return {"ok": False, "summary": describe_error(error)}


async def _probe(env_class: type[BaseEnv], env_args: dict[str, Any], rows: list[Any]) -> dict[str, Any] | None:
    async with EnvHost(lambda: env_class(**env_args)) as host:
        said = await host.call("validate_probe", rows, deadline=limits.REWARD_SECONDS)
    if said is not None and not isinstance(said, dict):
        raise UsageError(f"validate_probe returned {type(said).__name__}. Return a dict with ok and summary, or None.")
    return said


def assert_group_reward_contract(
    env_class: type[BaseEnv],
    env_args: dict[str, Any] | Source | None = None,
    dataset: Source = _NO_ROWS,
    *,
    samples: int = 2,
) -> None:
    """AssertionError unless compute_group_reward returns one dict of new, finite components per sibling."""
    if not overrides_compute_group_reward(env_class):
        return
    arguments, dataset = _arguments_and_rows(env_args, dataset)
    diagnosis = examine_sync(env_class, arguments, rows=dataset, examples=2, group_samples=samples)
    broken = [finding for finding in diagnosis.errors if finding.check in _GROUP_CHECKS]
    if broken or not diagnosis.answers:
        raise AssertionError("\n".join(map(str, broken)) or f"No group could be played:\n{diagnosis}")
