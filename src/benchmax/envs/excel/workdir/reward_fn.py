"""The reward that `ExcelEnv` computes in its own process, for use of this workdir without that class."""

from pathlib import Path
from typing import Any

from benchmax.envs.excel.reward import score_workbook
from benchmax.envs.excel.tools import OUTPUT
from benchmax.envs.excel.workbook_sandbox import WorkbookSandbox


async def spreadsheet(workspace: Path, output_filename: str = OUTPUT, **task: Any) -> Any:
    """The cells of the answer hold what is expected."""
    output = Path(workspace) / output_filename
    async with WorkbookSandbox(("openpyxl", "ironcalc"), insist=True) as books:  # no code runs there, only formulas
        return await score_workbook(books, output.read_bytes() if output.is_file() else None, task)


reward_functions = {"spreadsheet": spreadsheet}
