"""Environments of other libraries by `NAME:address`, where the library is not installed; the lanes play them."""

from __future__ import annotations

import pytest

from benchmax.adapters.imports.addresses import class_name, id_and_settings
from benchmax.adapters.trainer_status import installed_version
from benchmax.envs.loading import load_env_class
from benchmax.errors import UsageError


@pytest.mark.parametrize("spec", ["verifiers:gsm8k", "openenv:http://127.0.0.1:9", "skyrl_gym:gsm8k"])
def test_a_library_that_is_missing_is_one_line_with_the_command(spec):
    library = spec.partition(":")[0].replace("_", "-")
    if installed_version(library) is not None:
        pytest.skip(f"{library} is installed")
    with pytest.raises(UsageError, match=rf"{library}.* is not installed. Run: pip install '{library}=="):
        load_env_class(spec)


def test_an_address_has_an_id_and_settings():
    found = id_and_settings("verifiers", "owner/name?split=test&limit=3&strict=true")
    assert found == ("owner/name", {"split": "test", "limit": 3, "strict": True})
    with pytest.raises(UsageError, match=r"Write its id behind the colon: verifiers:ID"):
        id_and_settings("verifiers", "?split=test")


def test_classes_have_names_of_their_own():
    assert class_name("verifiers", "primeintellect/my-math@1") == "VerifiersPrimeintellectMyMath1"
