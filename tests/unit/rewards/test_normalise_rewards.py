"""B7 and B8: a reward is a finite float, or unscored with a reason."""

import gc
import math
import warnings
from decimal import Decimal
from fractions import Fraction

import pytest

from benchmax import limits
from benchmax.envs.normalise_rewards import finite, name_problem, normalise_rewards
from benchmax.envs.types import Unscored
from benchmax.errors import describe_error


async def coroutine():
    return 1.0


def generator():
    yield 1.0


@pytest.mark.parametrize(("value", "expected"), [(1, 1.0), (0.5, 0.5), (True, 1.0), (False, 0.0), (-2.5, -2.5)])
def test_numbers_are_scored(value, expected):
    result = finite("r", value)
    assert result == expected
    assert type(result) is float


def test_numpy_and_torch_scalars_are_scored():
    import numpy as np
    import torch

    scalars = [np.float32(0.5), np.float64(0.5), np.array(0.5), torch.tensor(0.5, requires_grad=True)]
    assert [finite("r", value) for value in scalars] == [0.5] * 4
    assert finite("r", np.int64(3)) == 3.0
    assert finite("r", np.bool_(True)) == 1.0
    for value in (np.array([0.5]), np.array([1, 2]), torch.tensor([1.0]), torch.tensor(math.nan), np.float64("inf")):
        assert isinstance(finite("r", value), Unscored)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (math.nan, ["nan", "finite"]),
        (math.inf, ["inf", "finite"]),
        (-math.inf, ["-inf"]),
        (None, ["NoneType", "every path"]),
        ("1", ["str", "float()"]),
        (Decimal("0.5"), ["Decimal", "float()"]),
        (Fraction(1, 2), ["Fraction", "float()"]),
        ({"a": 1.0}, ["dict", "own name"]),
        ({}, ["dict"]),
        ([1.0], ["list", "mean"]),
        (1j, ["complex"]),
        (10**400, ["OverflowError"]),
        (object(), ["object"]),
    ],
)
def test_other_values_are_unscored_with_a_fix(value, words):
    result = finite("accuracy", value)
    assert isinstance(result, Unscored)
    for word in ["'accuracy'", *words]:
        assert word in result.reason


def test_a_number_too_large_to_compute_with_is_unscored():
    assert finite("a", 1e18) == 1e18
    for value in (1e300, -1e300, 10**200):
        reason = finite("a", value).reason
        assert reason.startswith("Reward 'a' is ")
        assert "beyond 1e+18; keep rewards small" in reason


def test_generators_are_unscored():
    assert "generator" in finite("r", generator()).reason


def test_an_unscored_component_keeps_its_reason():
    assert finite("r", Unscored("judge away")) == Unscored("judge away")
    assert "without a reason" in finite("r", Unscored("")).reason
    assert isinstance(finite("r", Unscored(None)).reason, str)


def test_stray_coroutines_are_closed():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        scored, unscored = normalise_rewards(
            {"a": coroutine(), "b": [coroutine()], "c\n": coroutine(), "d": {"x": coroutine()}, "e": 1}
        )
        assert "await it" in normalise_rewards(coroutine())[1]["reward"]
        normalise_rewards({f"k{i}": coroutine() for i in range(100)})
        normalise_rewards([coroutine()])
        finite("r", coroutine())
        gc.collect()
    assert scored == {"e": 1.0}
    assert "await it" in unscored["a"]
    assert [str(w.message) for w in caught] == []


@pytest.mark.parametrize("raw", [None, 1.0, "1", [1.0], (1,), math.nan, object(), {1.0}])
def test_a_result_that_is_no_dict_is_one_reason(raw):
    scored, unscored = normalise_rewards(raw)
    assert scored == {}
    assert list(unscored) == ["reward"]
    assert type(raw).__name__ in unscored["reward"]
    assert "dict of named numbers" in unscored["reward"]


def test_an_empty_dict_has_no_components():
    assert normalise_rewards({}) == ({}, {})


def test_one_bad_component_leaves_the_others():
    scored, unscored = normalise_rewards({"good": 1, "bad": math.nan})
    assert scored == {"good": 1.0}
    assert list(unscored) == ["bad"]


@pytest.mark.parametrize("name", ["correct", "a.b/c-d e", "précision", "評価", "../x", "x" * 80])
def test_names_that_are_fine(name):
    assert normalise_rewards({name: 1.0}) == ({name: 1.0}, {})


@pytest.mark.parametrize(
    "name", ["", " ", "x" * 81, "y" * 5000, "a\nb", "<b>", "\x1b[31m", "a:b", "\ud800", 7, None, ("a",)]
)
def test_names_that_are_not(name):
    assert name_problem(name)
    scored, unscored = normalise_rewards({name: 1.0})
    assert scored == {}
    (label, reason), *_ = unscored.items()
    assert name_problem(label) is None
    assert reason.endswith((".", "it."))


def test_too_many_components():
    scored, unscored = normalise_rewards({f"r{i}": 1.0 for i in range(200)})
    assert len(scored) == limits.REWARD_COMPONENTS
    assert "200 components" in unscored["reward"]


def test_a_mapping_that_breaks():
    class Broken(dict):
        def items(self):
            raise KeyError("boom")

    assert "boom" in normalise_rewards(Broken(a=1))[1]["reward"]


class Mute(Exception):
    def __str__(self):
        raise RuntimeError("no")


def test_describe_error():
    assert describe_error(ValueError("bad")) == "ValueError: bad"
    assert describe_error(ValueError()) == "ValueError"
    assert describe_error(Mute()).startswith("Mute: ")
    assert len(describe_error(ValueError("x" * 10**6))) == limits.ERROR_CHARS
    describe_error(ValueError("\ud800")).encode("utf-8")
