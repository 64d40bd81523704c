"""The process that makes a checkpoint into one file: the adapter or the whole model, with its model card, as a tar.

The file is kept in the run's `exports/` and replaced when the checkpoint is; a few are kept.
"""

from __future__ import annotations

import asyncio
import shutil
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmax.files.atomic import replacing
from benchmax.files.logs import modified_at
from benchmax.platform.runner.children.child_process import ChildProcess, main

EXPORTS_KEPT = 3
"""Files kept for one run: a whole model is large, and can be made again."""


async def export_checkpoint(child: ChildProcess) -> str:
    child.say("writing the weights")
    await asyncio.to_thread(_export, child.folder, child.launch)
    return "The file is ready."


def _export(folder: Path, launch: Mapping[str, Any]) -> None:
    from benchmax.trainer.export import export_adapter, export_merged

    run_dir, name = Path(launch["run_dir"]), str(launch["file"])
    out = folder / "model"
    shutil.rmtree(out, ignore_errors=True)
    export = export_adapter if launch["format"] == "adapter" else export_merged
    export(run_dir, out, which=launch["checkpoint"])
    target = run_dir / "exports" / name
    target.parent.mkdir(mode=0o700, exist_ok=True)
    try:
        with replacing(target, private=True) as file, tarfile.open(fileobj=file, mode="w") as tar:
            tar.add(out, arcname=name.removesuffix(".tar"), filter=_plain)
    finally:
        shutil.rmtree(out, ignore_errors=True)
    _forget_old(target)


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Without the owner's name and number, with modes that a receiver can use."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mode = 0o755 if member.isdir() else 0o644
    return member


def _forget_old(newest: Path) -> None:
    others = [path for path in newest.parent.glob("*.tar") if path != newest]
    for path in sorted(others, key=modified_at, reverse=True)[EXPORTS_KEPT - 1 :]:
        path.unlink(missing_ok=True)


if __name__ == "__main__":
    main(export_checkpoint)
