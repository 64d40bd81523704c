"""The page about TRL runs."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.append(str(ROOT / "tests" / "docs"))

from markdown_blocks import Reader  # noqa: E402


def test_the_page_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Reader(ROOT / "docs" / "trainers" / "trl.md", tmp_path, "").follow()
