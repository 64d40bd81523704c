"""What is said of a package that is not installed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import pytest

from benchmax import extras
from benchmax.errors import UsageError
from benchmax.platform.runner.children.child_process import failure
from benchmax.platform.runner.jobs.outcome import CRASHED, MISTAKE

TORCH = ModuleNotFoundError("No module named 'torch.nn'", name="torch.nn")


class Noted(NamedTuple):
    """An installed package with what pip noted of its origin."""

    origin: dict[str, object] | None

    def read_text(self, name: str) -> str | None:
        assert name == "direct_url.json"
        return self.origin and json.dumps(self.origin)


@pytest.fixture
def without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name == "torch" else object())


@pytest.mark.usefixtures("without_torch")
def test_the_extra_is_named() -> None:
    assert extras.explain(TORCH) == (
        f"This needs the package 'torch', which is not installed. Run: {extras.install('train')}"
    )
    assert extras.missing("train") == ["torch"]
    with pytest.raises(UsageError, match=r"^It needs packages that are not installed \(torch\)\. Run: .*pip install"):
        extras.require("It", "platform", "train")
    extras.require("It", "platform")


@pytest.mark.parametrize(
    ("noted", "command"),
    [
        (None, "pip install 'benchmax[train,mcp]'"),
        ({"url": "file:///a b/it", "dir_info": {}}, "pip install 'benchmax[train,mcp] @ file:///a b/it'"),
        ({"url": "file:///it", "dir_info": {"editable": True}}, "pip install -e '/it[train,mcp]'"),
        ({"url": "file:///it's", "dir_info": {"editable": True}}, "pip install -e '/it'\"'\"'s[train,mcp]'"),
        (
            {"url": "https://x/benchmax.git", "vcs_info": {"vcs": "git", "commit_id": "c0ffee"}},
            "pip install 'benchmax[train,mcp] @ git+https://x/benchmax.git@c0ffee'",
        ),
        ({"url": "https://x/benchmax.whl", "archive_info": {}}, "pip install 'benchmax[train,mcp]'"),
    ],
)
def test_an_extra_comes_from_where_benchmax_came_from(
    monkeypatch: pytest.MonkeyPatch, noted: dict[str, object] | None, command: str
) -> None:
    """Another package may have our name on an index."""
    monkeypatch.setattr(extras, "distribution", lambda name: Noted(noted))
    monkeypatch.setattr(extras, "spelled", lambda program: program)
    assert extras.install("train", "mcp") == command


def test_an_error_of_an_installed_package_is_no_missing_extra() -> None:
    assert extras.explain(ModuleNotFoundError("No module named 'pydantic.x'", name="pydantic.x")) is None
    assert extras.explain(ImportError("cannot import name 'x'")) is None


@pytest.mark.usefixtures("without_torch")
def test_a_run_says_it_too_and_is_not_tried_again(tmp_path: Path) -> None:
    ended = failure(TORCH, tmp_path)
    assert ended.code == MISTAKE
    assert f"{extras.install('train')} (on the platform's machine), then resume the run." in ended.reason
    assert failure(ModuleNotFoundError("No module named 'x'", name="x"), tmp_path).code == CRASHED
