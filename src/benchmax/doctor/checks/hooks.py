"""Do init_rollout and release_rollout work, quickly, and for each rollout by itself?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from statistics import median

from benchmax import limits
from benchmax.doctor.evidence import TOLERANCE, Evidence
from benchmax.doctor.findings import HOLDS, Finding, error, warning
from benchmax.doctor.quoting import advice
from benchmax.doctor.recording_host import HookCall, refused_call, signature_of
from benchmax.doctor.registry import called, check, environment, needs, played
from benchmax.errors import UsageError


def failures(
    evidence: Evidence, hook: str, title: str, fix: str, what: str = "rollouts", but: type[Exception] | tuple[()] = ()
) -> Iterator[Finding]:
    """An error if calls of the hook failed, except with errors of the kind `but`; a UsageError has its own advice."""
    calls = evidence.hook(hook)
    failed = [call for call in calls if call.error and not isinstance(call.error, but)]
    if failed:
        # A UsageError says how the environment is to be used; errors about time or processes do not.
        own = advice(failed[0].error) if isinstance(failed[0].error, UsageError) else ""
        fix = own or signature_fix(failed[0]) or fix
        yield error(title, f"in {len(failed)} of {len(calls)} {what}: {failed[0].message}", fix)


def signature_fix(call: HookCall) -> str:
    """How to write the hook, where it does not take the arguments it is given; else nothing."""
    return f"Write it as it is called: {signature_of(call.hook)}." if refused_call(call.error) else ""


@check("init-fails", "init_rollout succeeds", called("init_rollout"))
def init_fails(evidence: Evidence) -> Iterator[Finding]:
    fix = "Make it accept the row's init_rollout_args as keyword arguments, and check that what it needs is there."
    yield from failures(evidence, "init_rollout", "init_rollout failed.", fix)


@check("release-fails", "release_rollout succeeds", called("release_rollout"))
def release_fails(evidence: Evidence) -> Iterator[Finding]:
    fix = "Let it succeed also for a rollout whose init_rollout failed half-way: use .pop(rollout_id, None)."
    yield from failures(evidence, "release_rollout", "release_rollout failed.", fix)


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
    if each := next((each for each in evidence.interference if each.differs(TOLERANCE + evidence.noise)), None):
        together = "nothing, unscored," if each.together is None else f"{each.together:g}"
        yield error(
            "A rollout's reward changes when another rollout is open at the same time.",
            f"the gold answer earned {each.alone:g} alone and {together} {each.beside}",
            fix,
        )


_SUPERVISED = needs(
    lambda evidence: evidence.supervised, "no other process watches this one; benchmax validate does", after=played
)


@check(HOLDS, "no hook holds the interpreter", _SUPERVISED)
def holds_interpreter(evidence: Evidence) -> Iterator[Finding]:
    """Reported by the process that watches the doctor: one that is blocked reports nothing (`interpreter_watch`)."""
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
