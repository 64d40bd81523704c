"""Small parts of environments at their edges: names too long, texts made to be slow, schemas that ask for too much."""

from __future__ import annotations

import asyncio
import gc
import json
import weakref
from pathlib import Path
from time import process_time

import pytest

from benchmax.cross_loop import LoopCalls
from benchmax.doctor import examine_sync
from benchmax.doctor.tool_arguments import LONG_TEXT, MOST_ITEMS, arguments_for
from benchmax.envs.arithmetic import ArithmeticEnv
from benchmax.envs.base_env import BaseEnv
from benchmax.envs.calculator.expressions import compute
from benchmax.envs.datasets import load_examples
from benchmax.envs.loading import find_rows, load_env_class
from benchmax.envs.reward_helpers import percent_of_text_a_in_text_b
from benchmax.envs.types import ToolDefinition
from benchmax.errors import DatasetError, EnvDefinitionError, NotFoundError, ToolError
from benchmax.rollouts.tool_schema import argument_check

# Names


@pytest.mark.parametrize("name", ["x" * 300, "x" * 300 + ".jsonl", "/tmp/" + "x" * 5_000 + ".csv"])
def test_a_name_too_long_for_a_file_is_not_found(name: str) -> None:
    with pytest.raises(NotFoundError):
        find_rows(ArithmeticEnv, name)
    with pytest.raises(NotFoundError, match="There is no file"):
        load_examples(name)
    with pytest.raises(NotFoundError):
        load_env_class(name + ".py")


def test_a_module_that_raises_a_nameless_import_error_is_not_a_missing_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "nameless_module.py").write_text("raise ModuleNotFoundError('the driver is not installed')\n")
    with pytest.raises(EnvDefinitionError, match="the driver is not installed"):
        load_env_class("nameless_module.Env", tmp_path)


def test_tabs_separate_the_cells_of_a_tsv_however_it_is_written(tmp_path: Path) -> None:
    for name in ("rows.tsv", "ROWS.TSV"):
        (tmp_path / name).write_text("prompt\tground_truth\tnote, if any\nHi?\tHello\tnone\n")
        [example] = load_examples(tmp_path / name)
        assert example["task"] == {"prompt": "Hi?", "ground_truth": "Hello", "note, if any": "none"}


# Texts


@pytest.mark.parametrize(("first", "different", "length"), [(33, 90, 1_500), (0x4E00, 4_000, 4_000)])
def test_texts_that_share_nothing_but_single_letters_are_compared_in_little_time(
    first: int, different: int, length: int
) -> None:
    said = "".join(f"{chr(first + n % different)}\x01" for n in range(length))
    reference = "".join(f"{chr(first + n % different)}\x02" for n in range(length))
    began = process_time()
    assert 0.0 <= percent_of_text_a_in_text_b(said, reference) <= 1.0
    assert process_time() - began < 5.0


def test_ordinary_texts_are_still_aligned_letter_by_letter() -> None:
    text = (Path(__file__).parents[3] / "docs" / "glossary.md").read_text(encoding="utf-8")[:3_000]
    assert percent_of_text_a_in_text_b(text[500:1_500], text) == 1.0
    assert percent_of_text_a_in_text_b(text[:1_000] + "zzz" + text[1_000:2_000], text) == pytest.approx(2_000 / 2_003)


@pytest.mark.parametrize("expression", ["1e308 * 10", "1e999", "1e308*10 - 1e308*10", "1 / 0", "2 +"])
def test_a_sum_without_a_finite_value_is_an_error_for_the_model(expression: str) -> None:
    with pytest.raises(ToolError, match="cannot be computed"):
        compute(expression)


# The doctor


@pytest.mark.parametrize("name", ["arithmetic", "calculator"])
def test_a_ground_truth_that_is_no_whole_number_is_refused_when_rows_are_read(name: str) -> None:
    env = load_env_class(name)
    with pytest.raises(DatasetError, match=r"ground_truth is 'seven', not a whole number"):
        load_examples([{"question": "3 + 4?", "ground_truth": "seven"}], env)
    (example,) = load_examples([{"question": "3 + 4?", "ground_truth": 7.0}], env)
    assert example.get("task") == {"ground_truth": "7"}


@pytest.mark.parametrize("name", ["arithmetic", "calculator"])
def test_rows_that_an_environment_does_not_make_are_told_by_name(name: str) -> None:
    with pytest.raises(NotFoundError, match=r"'other' is no file, and \w+ knows no dataset of that name"):
        find_rows(load_env_class(name), "other")


def test_arguments_are_made_for_schemas_that_ask_for_very_much() -> None:
    numbers = {"type": "array", "minItems": 10**9, "items": {"type": "array", "minItems": 10**9}}
    schema = {"type": "object", "properties": {"a": numbers, "b": {"type": "string", "minLength": 10**12}}}
    made = arguments_for(ToolDefinition("t", "d", schema))
    assert len(made["a"]) == MOST_ITEMS
    assert len(made["b"]) == LONG_TEXT
    vector = {"type": "array", "minItems": 384, "items": {"type": "number"}}
    assert arguments_for(ToolDefinition("t", "d", {"type": "object", "properties": {"v": vector}})) == {
        "v": [1.0] * 384
    }


class Probed(BaseEnv):
    system_prompt = "Answer."

    async def validate_probe(self, eval_dataset):
        return {"ok": all(isinstance(row, dict) for row in eval_dataset), "summary": "rows are rows"}

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"x": 1.0}


def test_rows_that_cannot_be_read_do_not_reach_the_environments_own_check(tmp_path: Path) -> None:
    good = [json.dumps({"prompt": f"What is {n}?", "ground_truth": str(n)}) for n in range(3)]
    (tmp_path / "rows.jsonl").write_text("\n".join([*good, '{"prompt": ']))
    diagnosis = examine_sync(Probed, rows=str(tmp_path / "rows.jsonl"), pace="quick", examples=1)
    assert diagnosis.find("preprocess-fails")
    assert not diagnosis.find("own-probe")
    diagnosis = examine_sync(Probed, rows=str(tmp_path / "no.jsonl"), pace="quick", examples=1)
    assert "There is no file" in diagnosis.find("preprocess-fails")[0].evidence


# Work from other threads


async def test_a_callback_that_raises_does_not_keep_the_others_waiting() -> None:
    loop = asyncio.get_running_loop()
    told: list[object] = []
    loop.set_exception_handler(lambda _, context: told.append(context["exception"]))
    calls, done = LoopCalls(loop), loop.create_future()
    calls.schedule(lambda: 1 / 0)
    calls.schedule(done.set_result, "ran")
    assert await asyncio.wait_for(done, 60) == "ran"
    assert [type(each) for each in told] == [ZeroDivisionError]


def test_calls_into_a_closed_loop_are_not_kept() -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    calls = LoopCalls(loop)
    for _ in range(3):
        calls.schedule(print)
    assert not calls._queue


def test_calls_do_not_keep_their_loop_alive() -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    calls, gone = LoopCalls(loop), weakref.ref(loop)
    del loop
    gc.collect()
    assert gone() is None
    calls.schedule(print)
    assert not calls._queue


def test_a_parameter_may_have_several_types() -> None:
    schema = {"type": "object", "properties": {"value": {"type": ["string", "number"]}}, "required": ["value"]}
    check = argument_check(ToolDefinition("set_cell", "Sets it.", schema))
    assert [check({"value": each}) is None for each in ("x", 1, 1.5, True, None)] == [True, True, True, False, False]
