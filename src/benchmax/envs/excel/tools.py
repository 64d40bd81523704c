"""The tools: cells read, set and filled by name, and Python code beside the workbook.

Cell tools read the output as it stands, or the input while there is none, and write the output.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmax.envs.excel.workbook_sandbox import WorkbookError, WorkbookSandbox, why_ended
from benchmax.envs.generated_tasks import TEXT, arguments_schema
from benchmax.envs.types import ToolDefinition
from benchmax.errors import ToolError
from benchmax.sandbox.call import plain_name

INPUT, OUTPUT = "input.xlsx", "output.xlsx"
NAMES_FILE = "names.json"
"""Where an MCP server finds which workbook is which."""


@dataclass(slots=True)
class RolloutFiles:
    """The workbooks of one rollout: its input, its output, and what else was written."""

    content: bytes
    input: str = INPUT
    output: str = OUTPUT
    written: dict[str, bytes] = field(default_factory=dict)

    @property
    def current(self) -> bytes:
        return self.written.get(self.output, self.content)


_TYPED = {"type": ["string", "number", "boolean"]}
TOOLS = {
    tool.name: tool
    for tool in (
        ToolDefinition(
            "set_cell", "Writes a value or a formula into a cell.", arguments_schema(cell=TEXT, value=_TYPED)
        ),
        ToolDefinition(
            "fill_cells",
            "Writes a value or a formula into a range; references move along as they do in a spreadsheet.",
            arguments_schema(range=TEXT, value=_TYPED),
        ),
        ToolDefinition(
            "get_cells", "Shows the cells of a range, such as A1:B9 or 'My sheet'!A1.", arguments_schema(range=TEXT)
        ),
        ToolDefinition(
            "run_excel_code",
            "Runs Python code with openpyxl and pandas. It reads the workbook at the spreadsheet path and saves the "
            "result at output_excel_path. Returns what is in the saved workbook.",
            arguments_schema(python_code=TEXT, output_excel_path=TEXT),
        ),
    )
}


async def call_tool(books: WorkbookSandbox, files: RolloutFiles, name: str, given: Mapping[str, Any]) -> str:
    """Run a tool on a rollout's files; ToolError for what the model got wrong."""
    if name not in TOOLS:
        raise ToolError(f"There is no tool {name!r}. Use one of {', '.join(TOOLS)}.")
    wanted = (TOOLS[name].input_schema or {})["properties"]
    if missing := [each for each in wanted if each not in given]:
        raise ToolError(f"{name} needs the argument {missing[0]!r}. Give it as well.")
    if name == "run_excel_code":
        return await _run_code(books, files, str(given["python_code"]), str(given["output_excel_path"]))
    if name == "get_cells":
        return await books.get(files.current, str(given["range"]))
    area = str(given["cell" if name == "set_cell" else "range"])
    if name == "set_cell" and ":" in area:
        raise ToolError(f"{area} is a range. Name one cell.")
    edited = await books.edit(files.current, area, given["value"])
    files.written[files.output] = edited.content
    return edited.text


async def _run_code(books: WorkbookSandbox, files: RolloutFiles, code: str, output: str) -> str:
    if not plain_name(output) or not output.endswith(".xlsx") or output == files.input:
        raise ToolError(f"{output!r} is no name for the result. Save it at {files.output}.")
    result = await books.run_code(code, {files.input: files.content, **files.written}, output)
    if result.ended_by is not None:
        raise ToolError(f"The code was ended: {why_ended(result)}. Do less at once.")
    if result.exit != 0:
        raise ToolError(f"The code failed. {result.stderr.strip()[-_TRACE_CHARS:]}")
    if output not in result.files:
        raise ToolError(f"The code saved no workbook at {output}. Save it there.")
    try:
        text = await books.dump(result.files[output])
    except WorkbookError as error:
        reason = str(error).rstrip(".")
        raise ToolError(f"What the code saved at {output} is left out: {reason}. Save a workbook there.") from None
    files.written[output] = result.files[output]
    return f"{result.stdout.strip()}\n{text}" if result.stdout.strip() else text


_TRACE_CHARS = 2_000
"""The end of an error's traceback, which is what a model reads."""
