"""Checkpoints of a run: lists, and downloads as a model or an adapter."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from benchmax.errors import UsageError
from benchmax.files.archives import unpack_tar
from benchmax.files.atomic import refuse_filled
from benchmax.platform.sdk.calls import Request, Row, get, part_of_path, rows_in, run_path

if TYPE_CHECKING:
    from benchmax.platform.sdk.transport import Exchange

POLL_SECONDS = 0.5


def list_checkpoints(run_id: str) -> Request[list[Row]]:
    """A run's checkpoints."""
    return get(run_path(run_id, "checkpoints"), rows_in("checkpoints"))


async def download_checkpoint(
    exchange: Exchange, run_id: str, out: str | os.PathLike[str], checkpoint: str = "best", *, format: str = "merged"
) -> str:
    """Write a checkpoint's model (`merged`) or LoRA adapter (`adapter`) into a folder; returns the checkpoint's name.

    The platform makes the file on the first request, which takes a while.
    """
    folder = Path(out)
    refuse_filled(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".benchmax-", dir=folder.parent) as work:
        tar = Path(work) / "checkpoint.tar"
        path = run_path(run_id, f"checkpoints/{part_of_path(checkpoint)}/download?format={format}&wait=30")
        while not await exchange.download(path, tar):
            await exchange.pause(POLL_SECONDS)
        top = await exchange.in_thread(lambda: _unpack(tar, Path(work) / "files", folder))
    return top.removesuffix(f"-{format}")


def _unpack(tar: Path, work: Path, folder: Path) -> str:
    """Put the archive's one folder in place; returns the name it has in the archive."""
    unpack_tar(tar, work)
    tops = list(work.iterdir())
    if len(tops) != 1 or not tops[0].is_dir():
        raise UsageError("The archive holds no single folder. Do not trust who made it.")
    if folder.exists():
        folder.rmdir()
    shutil.move(tops[0], folder)
    return tops[0].name
