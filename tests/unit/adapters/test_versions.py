"""`benchmax doctor --trainers`: which versions work, which do not, what to pin."""

from __future__ import annotations

import pytest
from packaging.version import Version

from benchmax.adapters.adapter import TrainerAdapter, adapters
from benchmax.adapters.trainer_status import installed_version, trainer_status
from benchmax.errors import UsageError
from benchmax.trainer.backend import open_backend

PYDANTIC = Version(installed_version("pydantic"))


def adapter(*works: str, python: str = ">=3.11") -> TrainerAdapter:
    return TrainerAdapter("some", "Some", works or ("pydantic>=2",), "some==1.0", "a generator", python)


def test_a_tested_version_works():
    found = trainer_status(adapter("pydantic>=2", "packaging>=24"))
    assert (found.state, found.installed) == ("ok", str(PYDANTIC))


def test_a_version_that_was_not_tested_is_named_with_what_to_pin():
    found = trainer_status(adapter("pydantic>=1", f"pydantic<{PYDANTIC}"))
    assert found.state == "failed"
    assert f"pydantic is {PYDANTIC}; tested with pydantic<{PYDANTIC}" in found.says
    assert "pip install 'some==1.0'" in found.says


def test_a_package_beside_it_counts_too():
    found = trainer_status(adapter("pydantic>=2", "no-such-package-here>=1"))
    assert found.state == "failed"
    assert "no-such-package-here is not installed" in found.says


def test_a_trainer_that_is_not_there_is_missing_not_broken():
    found = trainer_status(adapter("no-such-package-here>=1", python=">=3.99"))
    assert (found.state, found.installed) == ("missing", None)
    assert "needs Python >=3.99" in found.says


def test_our_adapters_are_behind_the_door():
    assert {"skyrl", "trl"} <= {each.name for each in adapters()}


def test_a_trainer_with_its_own_loop_is_no_backend():
    with pytest.raises(UsageError, match=r"runs its own training loop.*docs/trainers/trl\.md"):
        open_backend("trl")
