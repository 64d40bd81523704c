"""Temporary folders of programs that were killed are removed by the next; those of the living are not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmax.files.temp_dirs import LOCK, make_owned_dir, remove_orphaned_dirs, remove_tree

MAKES_ONE = """
from benchmax.files.temp_dirs import make_owned_dir
print(make_owned_dir('benchmax-mcp-'), flush=True)
input()
"""


def test_folders_of_the_killed_are_removed_and_no_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    running = subprocess.Popen(
        [sys.executable, "-c", MAKES_ONE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=dict(os.environ),
    )
    assert running.stdout is not None
    other, mine = Path(running.stdout.readline().strip()), make_owned_dir("benchmax-workdir-")
    elsewhere, link = tmp_path / "elsewhere", tmp_path / "benchmax-mcp-link"
    elsewhere.mkdir()
    (elsewhere / LOCK).touch()
    link.symlink_to(elsewhere)
    (tmp_path / "benchmax-mcp-unknown").mkdir()
    remove_orphaned_dirs()
    assert other.is_dir()
    running.kill()
    running.communicate()
    remove_orphaned_dirs()
    assert not other.exists()
    assert mine.is_dir()
    assert (elsewhere / LOCK).exists()
    assert (tmp_path / "benchmax-mcp-unknown").is_dir()
    remove_tree(mine)
    assert not mine.exists()


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
    remove_tree(folder)
    assert not folder.exists()
    assert (kept / "a.txt").exists()
