"""How a child ended, and what follows: the one table of exit codes, and the rule for another attempt."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple

from benchmax.envs.remote.process import how_it_exited
from benchmax.files.logs import tail
from benchmax.platform.runner.children.child_files import EXIT_FILE, read_child_file
from benchmax.platform.wire.values import RunStatus

COMPLETE, CRASHED, MISTAKE, NO_SPACE, NO_MEMORY, INTERRUPTED = 0, 1, 2, 28, 12, 130
"""Exit codes of a child."""

FINAL = {
    MISTAKE: "The run was given something it cannot use.",
    NO_SPACE: "No space left on the disk of the run. Free some, then resume the run.",
    NO_MEMORY: "Out of memory. Use a smaller model, group_size or max_rollout_len.",
}
"""Codes after which another attempt would end the same way, and the reason if the child could not write its own."""

TAIL_LINES = 12
TAIL_CHARS = 2000

Why = Literal["", "cancel", "stop", "stall", "lost"]
"""Why the supervisor ended a child: it was cancelled, the platform stops, it hung, it could not be adopted."""


_REASONS: dict[Why, str] = {
    "stall": "It made no progress and was ended",
    "lost": "Its runner and its process were lost",
}


class Exit(NamedTuple):
    """How a child ended."""

    code: int | None
    reason: str


class Verdict(NamedTuple):
    """What follows for the run."""

    status: RunStatus
    """`pending` is another attempt."""
    reason: str
    counted: bool = True
    """Whether this attempt counts against the most allowed."""


def read_exit(run_dir: Path, pid: int, code: int | None) -> Exit:
    """The exit code, and the reason in exit.json if this very child wrote it."""
    written = read_child_file(run_dir / EXIT_FILE)
    if written.get("pid") != pid:
        return Exit(code, "")
    return Exit(written.get("code") if code is None else code, str(written.get("reason", "")))


def judge(ended: Exit, why: Why, attempt: int, most: int, last_lines: str) -> Verdict:
    """Decide what follows from the end of a child."""
    if ended.code == COMPLETE:
        return Verdict("complete", ended.reason)
    if why == "cancel":
        return Verdict("cancelled", "The run was stopped.")
    if ended.code in FINAL:
        return Verdict("failed", ended.reason or f"{FINAL[ended.code]}\n{last_lines}")
    if why == "stop":
        return Verdict("pending", "The platform was stopped; the run goes on when it starts again.", counted=False)
    what = _REASONS.get(why) or f"Its process {how(ended.code)}"
    if attempt < most:
        return Verdict("pending", f"{what}; attempt {attempt + 1} of {most} follows.")
    detail = ended.reason or (f"Its last lines were:\n{last_lines}" if last_lines else "It printed nothing.")
    return Verdict("stalled" if why == "stall" else "failed", f"{what}, in attempt {attempt} of {most}. {detail}")


def how(code: int | None) -> str:
    """An exit code in words; None for a process that another one was the parent of."""
    return "was killed" if code is None else how_it_exited(code)


def log_tail(run_dir: Path) -> str:
    """The last lines of child.log."""
    return tail(run_dir / "child.log", TAIL_LINES, most=4 * TAIL_CHARS)[-TAIL_CHARS:]
