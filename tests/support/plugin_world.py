"""The example plug-in, installed as editable, and a package that is out of order, in a virtual environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmax.net import ports
from benchmax.package_folders import package_folders
from benchmax.platform.daemon import control
from benchmax.platform.store.datadir import DataDir

ROOT = Path(__file__).resolve().parents[2]
BROKEN = """[benchmax.environments]
broken = broken_plugin:Env
rowless = rowless_plugin:Env
[benchmax.commands]
broken = broken_plugin:command
"""
ROWLESS = """
from benchmax import BaseEnv
class Env(BaseEnv):
    @classmethod
    def load_dataset(cls, name="", **kwargs): return None, None
    async def compute_reward(self, rollout_id, messages, task, **kwargs): return {"x": 1.0}
"""


def install(folder: Path) -> Path:
    """A Python that has everything this one has, and both packages."""
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    packages = next(folder.glob("lib/python*/site-packages"))
    (packages / "others.pth").write_text("".join(f"{path}\n" for path in (*package_folders(), ROOT / "src")))
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--target", str(packages), str(ROOT / "examples" / "plugin")], check=True)
    shutil.rmtree(packages / "anagrams")  # from here on as an editable install: a path to the sources
    (packages / "anagrams.pth").write_text(f"{ROOT / 'examples' / 'plugin'}\n")
    (packages / "broken_plugin.py").write_text("raise RuntimeError('out of order')\n")
    (packages / "rowless_plugin.py").write_text(ROWLESS)
    about = packages / "broken_plugin-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-plugin\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(BROKEN)
    return python


@contextmanager
def platform(python: Path, folder: Path, *options: str) -> Iterator[tuple[DataDir, str]]:
    """A platform that was started from there with `benchmax up`: its data directory, and what the command printed."""
    data = DataDir(folder / "data")
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("BENCHMAX_", "CASTFORM_"))}
    variables |= {"BENCHMAX_HOME": str(folder / "home"), "BENCHMAX_GPUS": "0"}
    words = [python, "-m", "benchmax", "up", "--port", str(ports.free_port()), "--data-dir", str(data.root), *options]
    up = subprocess.run(words, env=variables, capture_output=True, text=True, timeout=180)
    assert up.returncode == 0, up.stderr
    try:
        yield data, up.stdout + up.stderr
    finally:
        control.stop(data)
