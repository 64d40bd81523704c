"""Rows that a run would refuse are refused before anything is uploaded, with row, column, reason and fix."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from benchmax import BaseEnv, make_example
from benchmax.cli.app import app
from benchmax.envs.datasets import DatasetReport
from benchmax.envs.datasets.readers import named_rows
from benchmax.envs.datasets.usable_rows import check_count, check_run_rows
from benchmax.envs.remote.preprocess import batch_outcomes, preprocess
from benchmax.errors import DatasetError
from benchmax.platform.runner.children.train_child import load_task
from benchmax.platform.training_run import upload_training_run

GOOD = [{"prompt": f"{number}?", "ground_truth": str(number)} for number in range(20)]
WRONG = {"question": "2+2?", "answer": "4"}
ADVICE = "rename a column to prompt or messages"


class Plain(BaseEnv):
    async def compute_reward(self, rollout_id: str, messages: Any, task: Any, **kwargs: Any) -> dict[str, float]:
        return {"correct": 1.0}


class Questions(Plain):
    @classmethod
    def dataset_preprocess(cls, example: dict[str, Any], **kwargs: Any) -> Any:
        return make_example([{"role": "user", "content": example["question"]}], {"ground_truth": example["answer"]})


class NeedsPackage(Plain):
    @classmethod
    def dataset_preprocess(cls, example: dict[str, Any], **kwargs: Any) -> Any:
        import a_package_of_the_platform  # noqa: F401


class NoStorage:
    """A client that nothing may be sent with."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} was called")


def upload(train: Any, held_out: Any, env_class: type[BaseEnv] = Plain) -> str:
    """The refusal of an upload."""
    with pytest.raises(DatasetError) as refused:
        upload_training_run(
            env_class=env_class,
            train_dataset=train,
            eval_dataset=held_out,
            run_name="r",
            storage_client=NoStorage(),  # type: ignore[arg-type]
        )
    return str(refused.value)


def written(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def test_wrong_columns_are_refused_before_an_upload(tmp_path: Path) -> None:
    for source in ([*GOOD, WRONG, WRONG], iter([*GOOD, WRONG, WRONG])):
        told = upload(source, GOOD)
        assert told.startswith("2 of 22 rows of train_dataset cannot be used:\n")
        assert "train_dataset:21: the row has neither prompt nor messages; its columns are: question, answer" in told
        assert ADVICE in told
        assert told.endswith("Nothing was uploaded.")
        assert "lenient" not in told
    assert "eval_dataset:1: prompt: is empty → write what the model is asked" in upload(GOOD, [{"prompt": ""}])
    file = written(tmp_path / "rows.jsonl", [*GOOD, WRONG])
    assert f"{file}:21: the row has neither" in upload(file, GOOD)


def test_an_environment_decides_which_columns_it_needs() -> None:
    assert check_run_rows([WRONG] * 16, [WRONG], Questions) == (16, 1)
    assert "dataset_preprocess raised KeyError('question')" in upload(GOOD, [], Questions)


def test_a_package_that_only_the_platform_has_refuses_nothing() -> None:
    assert check_run_rows([WRONG] * 16, [WRONG], NeedsPackage) == (16, 1)


def test_enough_rows_are_usable_ones() -> None:
    assert check_run_rows(GOOD, ()) == (20, 0)
    with pytest.raises(DatasetError, match=r"at least 16 training rows; there are 3\. Add 13 .* Nothing was uploaded"):
        check_run_rows(GOOD[:3], ())
    with pytest.raises(DatasetError, match=r"there are 0.* Nothing was launched"):
        check_count(0, "Nothing was launched.")


async def test_what_still_fails_on_the_platform_names_no_file_of_it(tmp_path: Path) -> None:
    class Env:
        async def preprocess(self, source: Path, *, min_rows: int, name: str, advice: str) -> Any:
            async def convert(rows: list[Any]) -> list[Any]:
                from benchmax.envs.datasets import load_examples

                return list(batch_outcomes(rows, lambda row: load_examples([row], Plain, lenient=True)))

            report = DatasetReport(name, min_rows=min_rows, advice=advice)
            return await preprocess(convert, named_rows(source, name), report)

    files = {"train_dataset_path": written(tmp_path / "train.jsonl", [*GOOD, WRONG])}
    with pytest.raises(DatasetError) as refused:
        await load_task(Env(), files)
    told = str(refused.value)
    assert str(tmp_path) not in told
    assert "  train.jsonl:21: the row has neither prompt nor messages" in told
    assert told.endswith("Launch again.")
    assert "lenient" not in told


# The command line


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CASTFORM_PLATFORM_URL", "http://127.0.0.1:9")  # nothing answers there
    (tmp_path / "main.py").write_text(
        "from benchmax import BaseEnv\n"
        "class Own(BaseEnv):\n"
        "    async def compute_reward(self, rollout_id, messages, task, **kwargs):\n"
        "        return {'correct': 1.0}\n"
    )
    return tmp_path


def test_launch_refuses_them_first(project: Path) -> None:
    written(project / "rows.jsonl", [*GOOD, WRONG])
    result = CliRunner().invoke(app, ["launch", "main.py", "--data", "rows.jsonl", "--skip-validate"])
    told = str(result.exception)
    assert isinstance(result.exception, DatasetError)
    assert "1 of 21 rows of rows.jsonl cannot be used:\n  rows.jsonl:21: the row has neither" in told
    assert told.endswith("Nothing was uploaded.")
    assert "set aside" not in result.output, "no split of rows that cannot be used is shown"


def test_data_view_says_which_rows_are_unusable(project: Path) -> None:
    written(project / "rows.jsonl", [*GOOD[:2], WRONG, *[{"prompt": 3}] * 7])
    result = CliRunner().invoke(app, ["data", "view", "rows.jsonl"])
    assert result.exit_code == 0
    assert result.stdout.count("unusable") == 8
    assert "rows.jsonl:3: the row has neither prompt nor messages" in result.stderr
    assert "rows.jsonl:4: prompt: is a number, not text" in result.stderr
    assert result.stderr.count("rows.jsonl:") == 5, "the first are enough"
    assert "8 of the 10 rows shown cannot be used" in result.stderr
    rows = json.loads(CliRunner().invoke(app, ["data", "view", "rows.jsonl", "--json"]).stdout)
    assert [row["unusable"] is None for row in rows] == [True, True] + [False] * 8


def test_good_rows_are_shown_without_a_word(project: Path) -> None:
    written(project / "rows.jsonl", GOOD)
    result = CliRunner().invoke(app, ["data", "view", "rows.jsonl"])
    assert "unusable" not in result.stdout
    assert result.stderr == ""
