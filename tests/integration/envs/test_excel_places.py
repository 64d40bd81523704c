"""The Excel environment on MCP servers, and rows of SpreadsheetBench in their published shape."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import openpyxl
import pytest

from benchmax.envs.excel.excel_env import WORKDIR, ExcelEnvInProcess, ExcelEnvLocal, ExcelEnvSkypilot
from benchmax.envs.excel.row_shapes import workbook_of
from benchmax.envs.excel.tools import NAMES_FILE
from benchmax.envs.loading import find_rows
from benchmax.envs.mcp import ParallelMcpEnv
from benchmax.envs.mcp.provisioners import LocalProvisioner
from benchmax.envs.types import Example, ToolCall
from benchmax.errors import NotFoundError
from benchmax.models.scripted import ScriptedModel
from excel_world import HARDEST, examples, saved
from ready_world import play_all

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux")


@pytest.mark.slow
async def test_solutions_score_on_servers_of_their_own() -> None:
    chosen = [*examples(HARDEST, 2), *examples("formulas", 2)]
    env = ExcelEnvLocal(num_local_servers=2, level=HARDEST)
    inside = ExcelEnvInProcess(level=HARDEST)
    assert await env.list_tools() == await inside.list_tools()
    await inside.shutdown()

    def model_of(example: Example) -> Any:
        if example is chosen[-1]:
            return ScriptedModel("Done.")
        turns = [*(ExcelEnvLocal.gold_tool_calls(example)), "Done."]
        return ScriptedModel([turn if isinstance(turn, str) else [turn] for turn in turns])

    rollouts = await play_all(env, chosen, model_of)
    assert [rollout.rewards["spreadsheet"] for rollout in rollouts] == [1.0, 1.0, 1.0, 0.0]


async def test_the_workdir_scores_alike_without_the_class() -> None:
    env = ParallelMcpEnv(WORKDIR, LocalProvisioner(WORKDIR, 1))
    try:
        [example] = examples("formulas", 1)
        args, task = example["init_rollout_args"] or {}, example["task"] or {}
        await env.init_rollout("one")
        await env.copy_content_to_workspace("one", json.dumps({"input": "a.xlsx", "output": "output.xlsx"}), NAMES_FILE)
        await env.copy_content_to_workspace("one", workbook_of(args), "a.xlsx")
        [(tool, given)] = task["solution"]
        wrong = await env.run_tool("one", tool, **{**given, "cell": "no cell"})
        assert wrong.is_error
        assert "names no cells" in wrong.text
        await env.run_tool("one", tool, **given)
        assert await env.compute_reward("one", [], task) == {"spreadsheet": 1.0}
    finally:
        await env.shutdown()


async def test_a_rollout_that_saves_nothing_earns_nothing(tmp_path: Path) -> None:
    env = ExcelEnvLocal(num_local_servers=1)
    [example] = examples("formulas", 1)
    task, asked = example["task"] or {}, {**(example["init_rollout_args"] or {}), "output_filename": "1_out.xlsx"}
    try:
        await env.init_rollout("one", **asked)
        with pytest.raises(FileNotFoundError, match=r"1_out\.xlsx"):
            await env.copy_from_workspace("one", "1_out.xlsx", tmp_path / "out.xlsx")
        assert await env.compute_reward("one", [], task) == {"spreadsheet": 0.0}
    finally:
        await env.shutdown()


def test_machines_are_described_before_any_is_rented() -> None:
    env = ExcelEnvSkypilot("aws", num_nodes=3, servers_per_node=4, provision_at_init=False)
    assert env.num_servers == 12


# SpreadsheetBench


def spreadsheetbench(folder: Path) -> Path:
    """A dataset of five rows: a formula, a copied sheet, one already solved, one that names no cells, loose values."""
    rows = []

    def add(
        number: str, position: str, given: dict[str, Any], wanted: dict[str, Any], names=("input", "answer")
    ) -> None:
        place = folder / "spreadsheet" / number
        place.mkdir(parents=True)
        for name, cells in zip(names, (given, given | wanted), strict=True):
            book = openpyxl.Workbook()
            book.active.title = "Sheet1"
            book.create_sheet("Other one")
            for cell, value in cells.items():
                sheet, _, at = cell.rpartition("!")
                book[sheet or "Sheet1"][at] = value
            (place / f"1_{number}_{name}.xlsx").write_bytes(saved(book))
        rows.append(
            {
                "id": int(number) if number.isdigit() else number, "instruction": f"Do {number}.",
                "spreadsheet_path": f"spreadsheet/{number}", "instruction_type": "Cell-Level Manipulation",
                "answer_position": position,
            }
        )  # fmt: skip

    add("101", "B1:B2", {"A1": 2, "A2": 3.14159}, {"B1": 4, "B2": "=A2*2"})
    add(
        "52-7",
        "'Other one'!A1:A2,Sheet1!C1",
        {"A1": "x"},
        {"Other one!A1": "x", "Other one!A2": 7, "C1": "y"},
        ("init", "golden"),
    )
    add("103", "A1", {"A1": 2}, {})
    add("104", "nothing", {"A1": 2}, {"A1": 3})
    (folder / "dataset.json").write_text(json.dumps(rows))
    return folder


async def test_published_rows_load_and_score(tmp_path: Path) -> None:
    folder = spreadsheetbench(tmp_path / "all_data_0.1")  # a folder whose name looks like a file's
    rows = find_rows(ExcelEnvInProcess, str(folder))
    assert [row["id"] for row in rows] == ["101", "52-7"]
    chosen = [ExcelEnvInProcess.dataset_preprocess(row) for row in rows]
    assert "A2: 3.14159" in str(chosen[0]["prompt_messages"][-1]["content"])
    assert "Output Path: 1_101_output.xlsx" in str(chosen[0]["prompt_messages"][-1]["content"])
    assert str(tmp_path) not in json.dumps([example["task"] for example in chosen])
    solutions = {
        "101": "sheet['B1'], sheet['B2'] = '4', '=ROUND(A2*2,2)'",
        "52-7": "other = book['Other one']; other['A1'], other['A2'], sheet['C1'] = 'x', 7.001, 'y'",
    }

    def model_of(example: Example, solve: bool = True) -> ScriptedModel:
        number = (example["task"] or {})["dataset_row_id"]
        work = solutions[number] if solve else "pass"
        code = (
            f"import openpyxl\nbook = openpyxl.load_workbook('1_{number}_input.xlsx')\nsheet = book['Sheet1']\n{work}\n"
        )
        output = f"1_{number}_output.xlsx"
        given = {"python_code": f"{code}book.save('{output}')", "output_excel_path": output}
        return ScriptedModel([[ToolCall("run_excel_code", json.dumps(given))], "Done."])

    for solve, worth in ((True, 1.0), (False, 0.0)):
        env = ExcelEnvInProcess(level=HARDEST)
        rollouts = await play_all(env, chosen, lambda each, solve=solve: model_of(each, solve))
        assert [rollout.reward for rollout in rollouts] == [worth, worth]


def test_ids_do_not_depend_on_where_the_files_lie(tmp_path: Path) -> None:
    ids = []
    for name in ("one", "two"):
        rows, folder = ExcelEnvInProcess.load_dataset(
            "spreadsheetbench", path=spreadsheetbench(tmp_path / name), rows=2
        )
        assert folder == str(tmp_path / name)
        ids.append([ExcelEnvInProcess.dataset_preprocess(row)["id"] for row in rows])
    assert ids[0] == ids[1]


def test_what_is_missing_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCHMAX_SPREADSHEETBENCH", str(tmp_path / "nowhere"))
    with pytest.raises(NotFoundError, match="--data FOLDER"):
        ExcelEnvInProcess.load_dataset("spreadsheetbench")
    folder = spreadsheetbench(tmp_path / "data")
    rows = json.loads((folder / "dataset.json").read_text())
    for changed, error, told in (
        ({"answer_position": None}, ValueError, "has no answer_position"),
        ({"spreadsheet_path": "../elsewhere"}, ValueError, "outside of the folder"),
        ({"spreadsheet_path": "spreadsheet/9"}, FileNotFoundError, "There is no folder"),
        ({"id": 999}, FileNotFoundError, "1_999_input.xlsx"),
    ):
        (folder / "dataset.json").write_text(json.dumps([{**rows[0], **changed}]))
        with pytest.raises(error, match=told):
            ExcelEnvInProcess.load_dataset(str(folder))
