"""A run's checkpoints: which there are, and which one a name means. The directory is the run's: no link is followed."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from benchmax.files.links import read_plain
from benchmax.platform.wire.runs import Checkpoint

WEIGHTS = "weights.safetensors"
_MARK_BYTES = 1024


def folders(run_dir: Path) -> list[Path]:
    """Those that are kept, oldest first."""
    folder = run_dir / "checkpoints"
    found = () if folder.is_symlink() else folder.glob("step-*")
    kept = (path for path in found if path.is_dir() and not path.is_symlink())
    return sorted(kept, key=lambda path: (len(path.name), path.name))


def find(run_dir: Path, name: str) -> Path | None:
    """The checkpoint called `best`, `latest` or `step-N`; None when there is none.

    The latest stands for the best of a run without held-out rows, and the last that is whole for a latest that was
    being replaced when its trainer was killed.
    """
    files = ((path, path / WEIGHTS) for path in folders(run_dir))
    whole = {path.name: path for path, file in files if file.is_file() and not file.is_symlink()}
    if name == "best":
        name = marked(run_dir, "best") or "latest"
    if name == "latest":
        name = marked(run_dir, "latest")
        if name and name not in whole:
            name = next(reversed(whole), "")
    return whole.get(name)


def missing(run_dir: Path, *others: str) -> str:
    """What to say of a name that is no checkpoint of the run; `others` are names that would do as well."""
    kept = [path.name for path in folders(run_dir)]
    names = ", ".join([*(("best", "latest") if kept else ()), *kept, *others])
    return "The run has no such checkpoint. " + (f"Choose one of: {names}." if names else "It has none yet.")


def marked(run_dir: Path, mark: str) -> str:
    """The name of the checkpoint that is marked as `best` or `latest`; empty when none is."""
    try:
        return read_plain(run_dir / "checkpoints", mark, _MARK_BYTES).decode().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def listed(run_dir: Path) -> list[Checkpoint]:
    """What is shown of them, oldest first."""
    latest, best = marked(run_dir, "latest"), marked(run_dir, "best")
    found = []
    for path in folders(run_dir):
        number = path.name.removeprefix("step-")
        # Training removes old checkpoints at any moment: one that goes while it is read is not listed.
        with suppress(FileNotFoundError):
            found.append(
                Checkpoint(
                    name=path.name,
                    step=int(number) if number.isdecimal() else None,
                    created_at=path.stat().st_mtime,
                    bytes=sum(file.lstat().st_size for file in path.rglob("*")),
                    latest=latest == path.name,
                    best=best == path.name,
                )
            )
    return found
