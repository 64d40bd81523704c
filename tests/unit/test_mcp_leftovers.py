"""Temporary folders of programs that were killed are removed by the next; those of the living are not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmax.envs.mcp.agent.rollout_dirs import OWNER, claimed, remove, sweep

CLAIMS = (
    "from benchmax.envs.mcp.agent.rollout_dirs import claimed; print(claimed('benchmax-mcp-'), flush=True); input()"
)


def test_folders_of_the_killed_are_removed_and_no_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    running = subprocess.Popen(
        [sys.executable, "-c", CLAIMS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=dict(os.environ)
    )
    assert running.stdout is not None
    other, mine = Path(running.stdout.readline().strip()), claimed("benchmax-workdir-")
    reused = claimed("benchmax-servers-")
    (reused / OWNER).write_text(f"{os.getpid()} 1")  # the number is another process's now
    (tmp_path / "benchmax-mcp-unknown").mkdir()
    (tmp_path / "benchmax-mcp-link").symlink_to(reused)
    sweep()
    assert other.is_dir()
    assert not reused.exists()
    running.kill()
    running.communicate()
    sweep()
    assert not other.exists()
    assert mine.is_dir()
    assert (tmp_path / "benchmax-mcp-unknown").is_dir()


def test_folders_without_end_are_removed_and_links_are_not_followed(tmp_path: Path) -> None:
    kept, folder = tmp_path / "kept", tmp_path / "folder"
    kept.mkdir()
    (kept / "a.txt").touch()
    (folder / "many").mkdir(parents=True)
    for number in range(300):
        (folder / "many" / str(number)).touch()
    (folder / "link").symlink_to(kept)
    (folder / "many" / "link").symlink_to(kept / "a.txt")
    here = os.open(folder, os.O_RDONLY)
    for _ in range(1_500):  # deeper than a path can say, and than Python can recurse
        os.mkdir("ten_letters", dir_fd=here)
        inner = os.open("ten_letters", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.fchmod(here, 0)
    os.close(here)
    remove(folder)
    assert not folder.exists()
    assert (kept / "a.txt").exists()
