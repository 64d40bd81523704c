"""validate_env: the contract's shape, and the defects it must not have."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from benchmax.doctor import CHECKS
from benchmax.envs.datasets import write_jsonl
from benchmax.envs.types import ToolDefinition
from benchmax.errors import UsageError
from benchmax.platform import validation
from benchmax.platform.client import ExampleValidation, ValidationResult
from benchmax.platform.validation import (
    ValidationReport,
    assert_group_reward_contract,
    overrides_compute_group_reward,
    overrides_validate_probe,
    run_validate_probe,
    validate_env,
)
from broken_envs import (
    ROWS,
    Constant,
    Good,
    GroupRaises,
    GroupWrongLength,
    Leaks,
    MyEnv,
    Notebook,
    OwnProbeFails,
    PaysEmptyTags,
    Ranked,
    ReturnsText,
)  # fmt: skip


def test_the_users_environment_passes_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    report = validate_env(MyEnv, {}, ROWS[:16], ROWS[16:])
    assert report
    assert (report.local_ok, report.remote, report.remote_ran, report.remote_ok) == (True, None, False, False)
    printed = capsys.readouterr().out.splitlines()
    ran = report.local_passed
    assert printed[-1] == f"validate_env passed: local {ran}/{ran} checks"
    assert {line[0] for line in printed[:-1]} == {"✓", "-"}
    assert len(printed) - 1 == len(CHECKS)


def test_the_signature_is_the_contracts() -> None:
    parameters = inspect.signature(validate_env).parameters
    positional = [name for name, p in parameters.items() if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert positional == ["env_class", "env_args", "train_dataset", "eval_dataset"]
    defaults = {name: p.default for name, p in parameters.items() if p.kind is p.KEYWORD_ONLY}
    assert defaults == {
        "local_modules": None, "pip_dependencies": None, "local": True, "api_key": None, "base_url": None,
        "llm_base_url": None, "llm_api_key": None, "remote_examples": 2, "group_reward_samples": 2, "llm_model": None,
        "max_turns": 4, "max_tool_calls": 8, "verbose": True, "full_messages": False,
    }  # fmt: skip
    fields = list(inspect.signature(ValidationReport).parameters)
    assert fields[:5] == ["local_passed", "local_failed", "remote", "local_ran", "remote_ran"]


def test_a_broken_reward_fails_with_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    report = validate_env(ReturnsText, {}, ROWS)
    assert not report
    assert report.local_failed >= 1
    printed = capsys.readouterr().out
    assert "✗ every answer is scored" in printed
    assert "fix:" in printed
    assert "validate_env failed: local " in printed


def test_a_reward_that_stays_0_does_not_pass() -> None:
    report = validate_env(Constant, {}, ROWS, verbose=False)
    assert not report
    assert report.diagnosis is not None
    assert "nothing-earns" in report.diagnosis.failed


def test_init_and_release_are_called() -> None:
    report = validate_env(Leaks, {}, ROWS, verbose=False)
    assert report, "a warning does not fail"
    assert report.diagnosis is not None
    assert report.diagnosis.find("release-leaks")


def test_every_row_is_preprocessed_not_only_the_first() -> None:
    report = validate_env(Good, {}, [*ROWS, {"text": "no prompt here"}], verbose=False)
    assert report.diagnosis is not None
    assert report.diagnosis.failed == ["preprocess-fails"]


def test_a_report_that_is_printed_fits_a_screen_and_counts_unusable_rows() -> None:
    report = validate_env(Good, [{"question": "?"}] * 30, verbose=False)
    assert not report
    assert len(repr(report)) < 200
    assert report.diagnosis is not None
    assert "on 0 examples of 30 rows" in report.diagnosis.summary()


def test_a_tool_without_schema_is_fine() -> None:
    class Plain(Good):
        async def list_tools(self):
            return [ToolDefinition("now", "Tell the time.")]

        async def run_tool(self, rollout_id, tool_name, **tool_args):
            return "noon"

    assert validate_env(Plain, {}, ROWS, verbose=False)


def test_messages_with_tool_calls_and_no_content_are_fine() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    rows = [
        {
            "messages": [
                {"role": "user", "content": row["prompt"]},
                {"role": "assistant", "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "1", "name": "look", "content": "nothing"},
                {"role": "user", "content": "So?"},
            ],
            "ground_truth": row["ground_truth"],
        }
        for row in ROWS
    ]
    assert validate_env(MyEnv, {}, rows, verbose=False)


def test_a_missing_system_prompt_is_said_and_few_rows_are_too() -> None:
    class NoPrompt(Good):
        system_prompt = ""

    report = validate_env(NoPrompt, {}, ROWS[:4], verbose=False)
    assert report.diagnosis is not None
    assert {finding.check for finding in report.diagnosis.warnings} == {"system-prompt-missing", "too-few-rows"}
    assert report


class Played:
    """A platform on which every example passes."""

    def __init__(self, *_: object) -> None:
        pass

    def __enter__(self) -> Played:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def validate_examples(self, rows: list[object], **_: object) -> ValidationResult:
        assert rows == ROWS[: len(rows)]
        return ValidationResult([ExampleValidation(index, True) for index in range(len(rows))])


def test_rows_that_can_be_read_once_are_checked_here_and_on_the_platform(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(validation, "RolloutClient", Played)
    report = validate_env(MyEnv, None, iter(ROWS[:16]), iter(ROWS[16:]), api_key="sk_x", remote_examples=18)
    assert (report.local_ok, report.remote_ok, len(report.remote["examples"])) == (True, True, 18)
    report = validate_env(MyEnv, None, [], local=False)
    assert not report
    assert "There are no rows to play" in report.remote["error"]
    assert "There are no rows to play" in capsys.readouterr().out


def test_a_platform_that_does_not_answer_fails_the_remote_part(capsys: pytest.CaptureFixture[str]) -> None:
    both = validate_env(Good, {}, ROWS, api_key="sk_x", base_url="http://127.0.0.1:9")
    assert not both
    assert (both.local_ok, both.remote_ran, both.remote_ok) == (True, True, False)
    printed = capsys.readouterr().out
    assert "✗ played on the platform" in printed
    assert "Cannot reach http://127.0.0.1:9" in printed
    assert "remote failed" in printed.splitlines()[-1]
    alone = validate_env(Good, {}, ROWS, local=False, api_key="sk_x", base_url="http://127.0.0.1:9", verbose=False)
    assert not alone
    assert not alone.local_ran


def test_full_messages_shows_what_was_scored(capsys: pytest.CaptureFixture[str]) -> None:
    validate_env(PaysEmptyTags, {}, ROWS, full_messages=True)
    assert "empty-tags: 'Capital of" in capsys.readouterr().out


async def test_it_works_inside_a_running_loop() -> None:
    assert validate_env(Notebook, {}, ROWS, verbose=False)


def test_quiet_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    validate_env(Good, {}, ROWS, verbose=False)
    assert capsys.readouterr().out == ""


def test_the_parts_can_be_asked_for_alone() -> None:
    assert overrides_compute_group_reward(Ranked)
    assert not overrides_compute_group_reward(Good)
    assert overrides_validate_probe(OwnProbeFails)
    assert run_validate_probe(Good, {}, ROWS) is None
    assert run_validate_probe(OwnProbeFails, {}, ROWS) == {"ok": False, "summary": "the index is empty for 20 rows"}
    assert_group_reward_contract(Good, {}, ROWS)
    assert_group_reward_contract(Ranked, {}, ROWS)
    with pytest.raises(AssertionError, match="group-reward-wrong-length"):
        assert_group_reward_contract(GroupWrongLength, {}, ROWS)
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        assert_group_reward_contract(GroupRaises, {}, ROWS)


def test_a_probe_that_raises_is_an_answer_not_an_exception() -> None:
    class Raises(Good):
        async def validate_probe(self, eval_dataset):
            raise ConnectionError("index down")

    assert run_validate_probe(Raises, {}, ROWS) == {"ok": False, "summary": "ConnectionError: index down"}
    report = validate_env(Raises, {}, ROWS, verbose=False)
    assert report, "the environment's own probe never fails a run"
    assert report.diagnosis is not None
    assert report.diagnosis.find("own-probe")


def test_rows_in_the_place_of_the_arguments_are_taken_as_meant(tmp_path: Path) -> None:
    for given in ([ROWS], [ROWS[:16], ROWS[16:]], [iter(ROWS)], [write_rows(tmp_path / "rows.jsonl")]):
        report = validate_env(MyEnv, *given, verbose=False)
        assert report, report.diagnosis
        assert report.diagnosis is not None
        assert report.diagnosis.rows >= 16
    with pytest.raises(UsageError, match=r"env_args is a list\. Give the constructor's arguments as a dict"):
        validate_env(MyEnv, ROWS, ROWS, ROWS)
    with pytest.raises(UsageError, match="env_args is a number"):
        validate_env(MyEnv, 3)  # type: ignore[arg-type]
    assert_group_reward_contract(Ranked, ROWS)
    with pytest.raises(AssertionError):
        assert_group_reward_contract(GroupRaises, ROWS)
    assert (run_validate_probe(OwnProbeFails, ROWS) or {})["ok"] is False


def write_rows(path: Path) -> str:
    write_jsonl(path, ROWS)
    return str(path)
