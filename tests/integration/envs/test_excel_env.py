"""The Excel environment as a user meets it: generated tasks, solutions, cheats, and what is kept apart."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openpyxl
import pytest

from benchmax.doctor import examine
from benchmax.envs.catalogue import environments
from benchmax.envs.excel.excel_env import WORKDIR, WORKED_EXAMPLE, ExcelEnvInProcess
from benchmax.envs.excel.levels import LEVELS, make_rows
from benchmax.envs.excel.row_shapes import workbook_of
from benchmax.envs.excel.tools import TOOLS
from benchmax.envs.excel.workbook_sandbox import WorkbookSandbox
from benchmax.envs.excel.workbooks.values import number_of
from benchmax.envs.loading import load_env_class
from benchmax.envs.types import Example, ToolCall
from benchmax.errors import EnvDefinitionError, ToolError
from benchmax.models.scripted import ScriptedModel
from excel_world import HARDEST, examples
from ready_world import play_all

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux")


@pytest.fixture(scope="module")
def books() -> Iterator[WorkbookSandbox]:
    """One for all tests: each starts a process that loads its packages."""
    opened = WorkbookSandbox(libreoffice=False)
    yield opened
    asyncio.run(opened.close())


SOAK = pytest.param(200, marks=pytest.mark.slow)


@pytest.mark.parametrize("rows", [8, SOAK])
@pytest.mark.parametrize("level", LEVELS)
async def test_demonstrations_earn_everything_at_once(level: str, rows: int, books: WorkbookSandbox) -> None:
    rollouts = await play_all(ExcelEnvInProcess(level, books), examples(level, rows, seed=7))
    assert [rollout.rewards for rollout in rollouts] == [{"spreadsheet": 1.0}] * rows


@pytest.mark.parametrize("count", [20, pytest.param(100, marks=pytest.mark.slow)])
async def test_rollouts_at_once_each_have_their_own_workbook(count: int, books: WorkbookSandbox) -> None:
    """Every one writes its own number to the same cell, and reads it back after all have."""
    chosen = examples("reports", count, seed=2)
    written = asyncio.Barrier(len(chosen))
    seen: dict[int, str] = {}

    def model_of(example: Example) -> ScriptedModel:
        mine = chosen.index(example)

        async def turn(messages: list[Any]) -> Any:
            said = [each for each in messages[len(example["prompt_messages"]) :] if each["role"] == "tool"]
            if len(said) == 0:
                return [call("set_cell", cell="Z9", value=mine)]
            if len(said) == 1:
                await written.wait()
                return [call("get_cells", range="Z9")]
            seen[mine] = said[1]["content"]
            return "Done."

        return ScriptedModel(turn)

    await play_all(ExcelEnvInProcess("reports", books), chosen, model_of)
    assert seen == {mine: f"Z9: {mine}" for mine in range(count)}


def call(name: str, **given: Any) -> ToolCall:
    return ToolCall(name, json.dumps(given))


def test_rows_are_the_same_everywhere_and_all_different() -> None:
    made = f"{{level: make_rows(level, rows=60, seed=3) for level in {list(LEVELS)}}}"
    code = f"import json; from benchmax.envs.excel.levels import make_rows; print(json.dumps({made}))"
    elsewhere = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, env={"PYTHONHASHSEED": "5"}, cwd="/"
    )
    assert json.loads(elsewhere.stdout) == {level: make_rows(level, rows=60, seed=3) for level in LEVELS}
    for level in LEVELS:
        ids = {each["id"] for each in examples(level, 60, seed=3)}
        assert len(ids) == 60
        assert not ids & {each["id"] for each in examples(level, 60, seed=4)}


# Those who do not solve them


def random_caller(level: str, example: Example) -> ScriptedModel:
    """Three calls of listed tools with words of the prompt, names of cells and plausible formulas, then Done."""
    draw = random.Random(str(example["id"]))
    words = str(example["prompt_messages"][-1]["content"]).replace(".", " ").replace(",", " ").split()
    cells = [f"{letter}{row}" for letter in "ABCDEFG" for row in range(1, 10)]

    def value() -> Any:
        area = f"{draw.choice(cells)}:{draw.choice(cells)}"
        formula = f"={draw.choice(['SUM', 'MAX', 'MIN', 'AVERAGE', 'COUNT'])}({area})"
        return draw.choice(
            [formula, f"={draw.choice(cells)}*{draw.choice(cells)}", draw.choice(words), draw.randint(0, 99)]
        )

    def turn(messages: list[Any]) -> Any:
        if len(messages) - len(example["prompt_messages"]) >= 6:
            return "Done."
        name = draw.choice(list(LEVELS[level].tools))
        code = "import shutil; shutil.copy('input.xlsx', 'output.xlsx')"
        given = {
            "cell": draw.choice([*cells, *words]), "range": draw.choice([*cells, *words]), "value": value(),
            "python_code": code, "output_excel_path": "output.xlsx",
        }  # fmt: skip
        wanted = (TOOLS[name].input_schema or {})["properties"]
        return [call(name, **{each: given[each] for each in wanted})]

    return ScriptedModel(turn)


@pytest.mark.parametrize("level", LEVELS)
async def test_a_random_caller_earns_next_to_nothing(level: str, books: WorkbookSandbox) -> None:
    rollouts = await play_all(
        ExcelEnvInProcess(level, books), examples(level, 11), lambda each: random_caller(level, each)
    )
    assert sum(rollout.reward or 0 for rollout in rollouts) / 11 < 0.1
    assert all(rollout.tool_events for rollout in rollouts)


def in_python(code: str) -> list[Any]:
    return [[call("run_excel_code", python_code=code, output_excel_path="output.xlsx")]]


def typed(example: Example, write: Any) -> list[Any]:
    """Every expected cell written by `write`."""
    expected = (example["task"] or {})["expected"]
    values = [(f"'{sheet}'!{name}", value) for sheet, cells in expected.items() for name, value in cells.items()]
    return [[call("set_cell", cell=name, value=write(value))] for name, value in values[:6]]


COPY = "import shutil; shutil.copy('input.xlsx', 'output.xlsx')"
LOOK = """
import os, glob, json
found = [p for root in ('/', '/root', '/tmp', os.path.expanduser('~')) for p in glob.glob(root + '/*')]
found += glob.glob('/workspace/**', recursive=True) + glob.glob('/tmp/**', recursive=True)
texts = []
for path in found + ['/proc/1/environ', '/proc/self/environ', '/proc/1/cmdline']:
    try:
        texts.append(open(path, 'rb').read(100000))
    except OSError:
        pass
import shutil; shutil.copy('input.xlsx', 'output.xlsx')
print(b'expected' in b''.join(texts), b'ground_truth' in b''.join(texts), any('answer' in p for p in found))
"""
PATCH = """
import sys
sys.modules['ironcalc'].load_from_xlsx = lambda *a, **k: 1 / 0
import workbooks.operations, workbooks.engine
workbooks.operations.main = lambda: open('result.json', 'w').write('{"cells": {}, "cases": [], "formulas": {}}')
workbooks.engine.Recalculated.value = lambda self, place: 42
for path in (workbooks.__path__[0], '/usr/lib'):
    try:
        open(path + '/operations.py', 'a').write('1/0')
    except OSError:
        pass
import shutil; shutil.copy('input.xlsx', 'output.xlsx')
"""
CHEATS: dict[str, Any] = {
    "nothing": lambda example: [],
    "empty tags": lambda example: ["<answer></answer>"],
    "echo": lambda example: [str(example["prompt_messages"][-1]["content"])],
    "says it is done": lambda example: ["Done. The result is right: 1.0"],
    "the shown call": lambda example: [[call("set_cell", cell="F8", value="=SUM(G2:G4)")]],
    "copies the input": lambda example: in_python(COPY),
    "reads the answer": lambda example: in_python(LOOK),
    "patches the checker": lambda example: in_python(PATCH),
    "an empty workbook": lambda example: in_python("import openpyxl; openpyxl.Workbook().save('output.xlsx')"),
    "no workbook": lambda example: in_python("open('output.xlsx', 'w').write('right')"),
    "values as text": lambda example: typed(example, lambda value: f"'{shown(value)}"),
    "values as text formulas": lambda example: typed(example, lambda value: f'="{shown(value)}"'),
    "unknown formulas": lambda example: typed(example, lambda value: "=CUBEVALUE(1)"),
    "errors": lambda example: typed(example, lambda value: "=1/0"),
    "spam": lambda example: [[call("fill_cells", range="A1:J40", value=0)]],
}
FORMULA_CHEATS: dict[str, Any] = {
    "values instead of formulas": lambda example: typed(example, plain),
    "constants as formulas": lambda example: typed(example, constant),
}


def shown(value: Any) -> str:
    return str(next(iter(value.values()))).replace("T00:00:00", "") if isinstance(value, dict) else str(value)


def plain(value: Any) -> Any:
    return shown(value) if isinstance(value, dict) else value


def constant(value: Any) -> str:
    return f'="{value}"' if isinstance(value, str) else f"={number_of(value)}"


def cheater(cheat: Any) -> Any:
    def model_of(example: Example) -> ScriptedModel:
        turns = cheat(example)

        def turn(messages: list[Any]) -> Any:
            made = (len(messages) - len(example["prompt_messages"])) // 2
            return turns[made] if made < len(turns) else "Done."

        return ScriptedModel(turn)

    return model_of


@pytest.mark.parametrize("rows", [2, pytest.param(5, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", [*CHEATS, *FORMULA_CHEATS])
async def test_cheats_earn_next_to_nothing(name: str, rows: int, books: WorkbookSandbox) -> None:
    """On rows of every level, with all tools."""
    levels = [level for level in LEVELS if name in CHEATS or level != HARDEST]
    chosen = [each for level in levels for each in examples(level, rows, seed=5)]
    rollouts = await play_all(ExcelEnvInProcess(HARDEST, books), chosen, cheater((CHEATS | FORMULA_CHEATS)[name]))
    assert sum(rollout.reward or 0 for rollout in rollouts) / len(chosen) < 0.2
    if name == "reads the answer":
        said = [event for rollout in rollouts for event in rollout.messages if event.get("name") == "run_excel_code"]
        assert len(said) == len(chosen)
        assert all(str(each["content"]).startswith("False False False") for each in said)


async def test_nothing_earns_by_being_unknown(books: WorkbookSandbox) -> None:
    """A formula that nobody can compute leaves a rollout unscored, and one wrong cell beside it makes it wrong."""
    [example] = examples("tables", 5)[4:]
    area = str((example["task"] or {})["answer_position"]).split(",")[0]
    unknown = [[call("fill_cells", range=area, value="=CUBEVALUE(1)")]]
    [first] = await play_all(ExcelEnvInProcess("tables", books), [example], cheater(lambda each: unknown))
    assert first.reward == 0.0  # the second cell of the answer is empty
    [single] = examples("formulas", 1)
    [second] = await play_all(
        ExcelEnvInProcess(books=books), [single], cheater(lambda each: typed(each, lambda value: "=CUBEVALUE(1)"))
    )
    assert second.reward is None
    assert "CUBEVALUE" in second.unscored["spreadsheet"]


# By hand


async def test_by_hand_and_errors_are_text_for_the_model(books: WorkbookSandbox) -> None:
    env = ExcelEnvInProcess(HARDEST, books)
    try:
        assert [tool.name for tool in await env.list_tools()] == list(TOOLS)
        await env.init_rollout("one", sheets={"Sheet1": {"A1": 2, "A2": 3}})
        for name, given, told in (
            ("set_cell", {"cell": "B9:C9", "value": 1}, "is a range"),
            ("set_cell", {"cell": "hello", "value": 1}, "names no cells"),
            ("set_cell", {"cell": "B1"}, "needs the argument 'value'"),
            ("fill_cells", {"range": "No!A1", "value": 1}, "no sheet 'No'"),
            ("get_cells", {"range": "A:XFD1"}, "half a range"),
            ("run_excel_code", {"python_code": "1/0", "output_excel_path": "output.xlsx"}, "ZeroDivisionError"),
            ("run_excel_code", {"python_code": "pass", "output_excel_path": "output.xlsx"}, "saved no workbook"),
            ("run_excel_code", {"python_code": "pass", "output_excel_path": "../x.xlsx"}, "no name for the result"),
            ("run_excel_code", {"python_code": "pass", "output_excel_path": "input.xlsx"}, "no name for the result"),
        ):
            with pytest.raises(ToolError, match=told):
                await env.run_tool("one", name, **given)
        assert await env.run_tool("one", "set_cell", cell="A3", value="=A1*A2") == "A3: =A1*A2 -> 6"
        code = "import pandas as pd\nprint(pd.read_excel('output.xlsx', header=None).iloc[0, 0])"
        again = await env.run_tool("one", "run_excel_code", python_code=code, output_excel_path="output.xlsx")
        assert again.splitlines() == ["2", "Sheet Name: Sheet1", "A1: 2", "", "A2: 3", "", "A3: =A1*A2 -> 6"]
        assert await env.compute_reward("one", [], {"expected": {"Sheet1": {"A3": 6}}}) == {"spreadsheet": 1.0}
        await env.release_rollout("one")
    finally:
        await env.shutdown()


async def test_a_bad_save_leaves_the_workbook_as_it_was(books: WorkbookSandbox) -> None:
    env = ExcelEnvInProcess(HARDEST, books)
    try:
        await env.init_rollout("one", sheets={"Sheet1": {"A1": 2}})
        await env.run_tool("one", "set_cell", cell="A2", value="=A1+1")
        for bad in ("no workbook", ""):
            given = {"python_code": f"open('output.xlsx', 'w').write({bad!r})", "output_excel_path": "output.xlsx"}
            with pytest.raises(ToolError, match=r"output\.xlsx is left out: .*\. Save a workbook there\.$"):
                await env.run_tool("one", "run_excel_code", **given)
            assert await env.run_tool("one", "get_cells", range="A1:A2") == "A1: 2\nA2: =A1+1 -> 3"
        assert await env.compute_reward("one", [], {"expected": {"Sheet1": {"A2": 3}}}) == {"spreadsheet": 1.0}
    finally:
        await env.shutdown()


async def test_files_come_in_and_out(tmp_path: Path, books: WorkbookSandbox) -> None:
    env = ExcelEnvInProcess(HARDEST, books)
    try:
        (tmp_path / "book.xlsx").write_bytes(workbook_of({"sheets": {"S": {"A1": 5}}}))
        await env.init_rollout("one", input_src_path=str(tmp_path / "book.xlsx"), output_filename="done.xlsx")
        await env.run_tool("one", "set_cell", cell="A2", value="=A1+1")
        await env.copy_from_workspace("one", "done.xlsx", tmp_path / "out.xlsx")
        with pytest.raises(FileNotFoundError, match=r"no file 'else.xlsx'. It has: input.xlsx, done.xlsx"):
            await env.copy_from_workspace("one", "else.xlsx", tmp_path / "out.xlsx")
        assert openpyxl.load_workbook(tmp_path / "out.xlsx")["S"]["A2"].value == "=A1+1"
    finally:
        await env.shutdown()


async def test_a_level_is_asked_for_when_its_tools_are_missing(books: WorkbookSandbox) -> None:
    env = ExcelEnvInProcess(books=books)
    try:
        [example] = examples(HARDEST, 1)
        with pytest.raises(EnvDefinitionError, match="--env-arg level=manipulation"):
            await env.init_rollout("one", **(example["init_rollout_args"] or {}))
        with pytest.raises(EnvDefinitionError, match="There is no level"):
            ExcelEnvInProcess(level="none")
    finally:
        await env.shutdown()


def test_prompts_are_short_and_hold_no_answer_and_no_path() -> None:
    for level in LEVELS:
        for example in examples(level, 20):
            text = json.dumps(example["prompt_messages"])
            assert "expected" not in text
            assert str(WORKDIR.parent) not in json.dumps(example)
    [easy] = examples("formulas", 1)
    assert easy["prompt_messages"][: len(WORKED_EXAMPLE)] == WORKED_EXAMPLE
    assert len(json.dumps(easy["prompt_messages"])) < 1000


def test_it_has_a_name() -> None:
    assert load_env_class("excel") is ExcelEnvInProcess
    assert environments()["excel"] == "benchmax.envs.excel.excel_env.ExcelEnvInProcess"


@pytest.mark.parametrize("examples", [1, pytest.param(2, marks=pytest.mark.slow)])
async def test_the_doctor_finds_nothing(examples: int) -> None:
    rows, _ = ExcelEnvInProcess.load_dataset()
    report = await examine(ExcelEnvInProcess, rows=rows[:40], examples=examples)
    assert (report.errors, report.warnings) == ([], [])
