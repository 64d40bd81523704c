"""What is said of a package that is not installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmax import extras
from benchmax.errors import UsageError
from benchmax.platform.runner.children.child_process import failure
from benchmax.platform.runner.jobs.outcome import CRASHED, MISTAKE

TORCH = ModuleNotFoundError("No module named 'torch.nn'", name="torch.nn")


@pytest.fixture
def without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name == "torch" else object())


@pytest.mark.usefixtures("without_torch")
def test_the_extra_is_named() -> None:
    assert extras.explain(TORCH) == (
        "This needs the package 'torch', which is not installed. Run: pip install 'benchmax[train]'"
    )
    assert extras.missing("train") == ["torch"]
    with pytest.raises(UsageError, match=r"^It needs packages that are not installed \(torch\)\. Run: pip install"):
        extras.require("It", "platform", "train")
    extras.require("It", "platform")


def test_an_error_of_an_installed_package_is_no_missing_extra() -> None:
    assert extras.explain(ModuleNotFoundError("No module named 'pydantic.x'", name="pydantic.x")) is None
    assert extras.explain(ImportError("cannot import name 'x'")) is None


@pytest.mark.usefixtures("without_torch")
def test_a_run_says_it_too_and_is_not_tried_again(tmp_path: Path) -> None:
    ended = failure(TORCH, tmp_path)
    assert ended.code == MISTAKE
    assert "pip install 'benchmax[train]' (on the platform's machine), then resume the run." in ended.reason
    assert failure(ModuleNotFoundError("No module named 'x'", name="x"), tmp_path).code == CRASHED
