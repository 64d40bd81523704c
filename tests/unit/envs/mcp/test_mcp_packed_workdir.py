"""A packed workdir, by its name and by the names and pickles of earlier versions."""

from __future__ import annotations

import importlib
import os
import pickle
from pathlib import Path

import pytest

from benchmax.envs.mcp import Luggage, PackedWorkdir
from benchmax.envs.mcp.packed_workdir import copy_workdir, pack, unpack

DEMO = Path(__file__).parents[4] / "examples" / "mcp_demo"


def test_a_pickle_holds_the_files_until_they_are_needed() -> None:
    opened = pickle.loads(pickle.dumps(PackedWorkdir(DEMO)))
    folder = Path(opened)
    assert folder != DEMO
    assert (folder / "mcp_config.yaml").read_bytes() == (DEMO / "mcp_config.yaml").read_bytes()
    assert opened.origin == pickle.loads(pickle.dumps(opened)).origin
    opened.drop()
    assert not folder.exists()
    assert (Path(opened) / "reward_fn.py").is_file(), "it is unpacked again"
    opened.drop()


def test_files_of_any_date_are_packed(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    os.utime(tmp_path / "a", (0, 0))
    unpack(pack(tmp_path), tmp_path / "unpacked")
    assert (tmp_path / "unpacked" / "a").read_text() == "old"


def test_a_copy_has_the_links_of_its_original(tmp_path: Path) -> None:
    workdir, copy = tmp_path / "work" / "dir", tmp_path / "copy"
    (workdir / "inner").mkdir(parents=True)
    (tmp_path / "work" / "shared").write_text("of several workdirs")
    (workdir / "inner" / "out").symlink_to("../../shared")
    (workdir / "within").symlink_to("inner")
    (workdir / "nowhere").symlink_to("../missing")
    copy_workdir(workdir, copy)
    assert (copy / "inner" / "out").read_text() == "of several workdirs"
    assert (copy / "within").resolve() == (copy / "inner").resolve()
    assert not (copy / "nowhere").exists()


def test_the_old_name_is_the_same_class() -> None:
    assert Luggage is PackedWorkdir
    assert importlib.import_module("benchmax.envs.mcp.luggage").Luggage is PackedWorkdir


@pytest.mark.parametrize("protocol", [2, 3])
def test_a_pickle_of_an_earlier_version_opens(protocol: int) -> None:
    now = pickle.dumps(PackedWorkdir(DEMO), protocol)
    then = now.replace(b"benchmax.envs.mcp.packed_workdir\n", b"benchmax.envs.mcp.luggage\n")
    assert then != now
    opened = pickle.loads(then)
    assert isinstance(opened, PackedWorkdir)
    assert (Path(opened) / "setup.sh").is_file()
    opened.drop()
