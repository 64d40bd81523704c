"""Do init_rollout and release_rollout work, quickly, and for each rollout by itself?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from statistics import median

from benchmax import limits
from benchmax.doctor.evidence import TOLERANCE, Evidence
from benchmax.doctor.findings import HOLDS, Finding, error, warning
from benchmax.doctor.registry import called, check, environment, played


@check("init-fails", "init_rollout succeeds", called("init_rollout"))
def init_fails(evidence: Evidence) -> Iterator[Finding]:
    calls = evidence.hook("init_rollout")
    failed = [call for call in calls if call.error]
    if failed:
        yield error(
            "init_rollout failed.",
            f"in {len(failed)} of {len(calls)} rollouts: {failed[0].said}",
            "Make it accept the row's init_rollout_args as keyword arguments, and check that what it needs is there.",
        )


@check("release-fails", "release_rollout succeeds", called("release_rollout"))
def release_fails(evidence: Evidence) -> Iterator[Finding]:
    calls = evidence.hook("release_rollout")
    failed = [call for call in calls if call.error]
    if failed:
        yield error(
            "release_rollout failed.",
            f"in {len(failed)} of {len(calls)} rollouts: {failed[0].said}",
            "Let it succeed also for a rollout whose init_rollout failed half-way: use .pop(rollout_id, None).",
        )


@check("release-leaks", "nothing of a rollout stays behind", played)
def release_leaks(evidence: Evidence) -> Iterator[Finding]:
    if evidence.left_behind:
        yield warning(
            "State of finished rollouts stays in memory.",
            f"{', '.join(evidence.left_behind)} still hold ids of released rollouts.",
            "Remove the rollout's entry in release_rollout; a run has hundreds of thousands of rollouts.",
        )


@check("state-crosstalk", "rollouts do not see one another's state", played)
def state_crosstalk(evidence: Evidence) -> Iterator[Finding]:
    fix = "Keep state in a dict under rollout_id (self.state[rollout_id] = …), never in one attribute for all."
    if evidence.crosstalk:
        yield error(
            "A tool shows one rollout what another one wrote.",
            f"a marker written in rollout A was read in rollout B by {evidence.crosstalk[0]}",
            fix,
        )
    for each in evidence.mingled:
        if each.differs(TOLERANCE + evidence.noise):
            yield error(
                "A rollout's reward changes when another rollout is open at the same time.",
                f"the gold answer earned {each.alone:g} alone and "
                f"{'nothing, unscored,' if each.together is None else f'{each.together:g}'} {each.beside}",
                fix,
            )
            return


def _watched(evidence: Evidence) -> str | None:
    return played(evidence) or (None if evidence.watched else "nobody watches this process; benchmax validate does")


@check(HOLDS, "no hook holds the interpreter", _watched)
def holds_interpreter(evidence: Evidence) -> Iterator[Finding]:
    """Told by who watches the doctor: one that is held says nothing any more (`stall`)."""
    yield from ()


@check("blocking-hook", "hooks do not block", environment)
def blocking_hook(evidence: Evidence) -> Iterator[Finding]:
    seconds: dict[str, list[float]] = defaultdict(list)
    for call in evidence.calls:
        seconds[f"{call.hook}:{call.key}" if call.key else call.hook].append(call.seconds)
    for key in sorted(evidence.blocking & seconds.keys()):
        typical = median(seconds[key])
        if typical >= limits.BLOCKING_SECONDS:
            yield warning(
                f"{key} blocks.",
                f"it held its event loop for {typical * 1000:.0f} ms without ever awaiting ({len(seconds[key])} calls)",
                "Use an async library, or await asyncio.to_thread(…) around the slow part.",
            )
