"""Workbooks that a model wrote, opened only inside the sandbox: its code, the cell tools, recalculation.

    async with WorkbookSandbox() as books:
        changed = await books.edit(content, "B1", "=SUM(A1:A3)")
        read = await books.read(changed.content, {"Sheet1": ["B1"]})

One fork server has openpyxl, pandas and ironcalc loaded; a call is a fork of it. It is used from any event loop, and
starts with the first call, also after `close`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmax import extras, limits
from benchmax.envs.excel.libreoffice_client import SecondOpinion, needs_opinion, with_opinion
from benchmax.envs.io_loop import IoLoop
from benchmax.errors import SandboxError, ToolError
from benchmax.sandbox import Call, Limits, Result, Sandbox

INSIDE = Path(__file__).parent / "workbooks"
MODULES = ("openpyxl", "ironcalc", "pandas", "openpyxl.chart", "openpyxl.styles")
BOOK, REQUEST, RESULT = "book.xlsx", "request.json", "result.json"
_LOAD = """
import importlib.util, sys
if "workbooks" not in sys.modules:
    found = importlib.util.spec_from_file_location("workbooks", {init!r}, submodule_search_locations=[{folder!r}])
    sys.modules["workbooks"] = importlib.util.module_from_spec(found)
    found.loader.exec_module(sys.modules["workbooks"])
import workbooks.operations
""".format(init=str(INSIDE / "__init__.py"), folder=str(INSIDE))
"""Imports `workbooks`, whose parent folder cannot be read there."""
_WARM_UP = _LOAD + "workbooks.formulas.unsupported()"
_OPERATE = _LOAD + "workbooks.operations.main()"
_WHY_ENDED = {
    "wall": "it took longer than {wall:g} s",
    "cpu": "it took more processor time than {cpu:g} s",
    "memory": "it needed more memory than {memory:,} bytes",
    "output": "it printed too much",
}
_PATIENCE = 2
"""Seconds that a call may wait for a busy machine, for each second of processor time."""
_LIMITS = Limits(
    wall_seconds=_PATIENCE * limits.EXCEL_CALL_SECONDS,
    cpu_seconds=limits.EXCEL_CALL_SECONDS,
    memory_bytes=limits.EXCEL_MEMORY_BYTES,
    disk_bytes=limits.EXCEL_FILE_BYTES,
    output_bytes=limits.EXCEL_OUTPUT_BYTES,
)


class WorkbookError(ToolError):
    """The workbook, or the name of its cells, is wrong."""


@dataclass(frozen=True, slots=True)
class Edited:
    content: bytes
    text: str


class WorkbookSandbox:
    """Operations on workbooks, given and returned as bytes."""

    def __init__(
        self, modules: Sequence[str] = MODULES, *, insist: bool | None = None, libreoffice: bool = True
    ) -> None:
        extras.require("The Excel environment", "envs")
        self._modules, self._insist, self._asks = tuple(modules), insist, libreoffice
        self._renew()

    def _renew(self) -> None:
        self._io = IoLoop("benchmax-excel", SandboxError)
        self._sandbox = Sandbox(self._modules, warm_up=_WARM_UP, read=[INSIDE], insist=self._insist)
        self._second = SecondOpinion()

    async def __aenter__(self) -> WorkbookSandbox:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        if self._io.runs:
            await self._io.run(self._sandbox.close)
            await self._io.run(self._second.close)
            await asyncio.to_thread(self._io.stop)
            self._renew()

    async def start(self) -> None:
        """Start the sandbox, unless it runs; SandboxUnavailable where this machine has none."""
        await self._io.run(self._sandbox.start)

    async def run(self, call: Call) -> Result:
        return await self._io.run(lambda: self._sandbox.run(call))

    # Operations

    async def dump(self, content: bytes, *, compact: bool = False, most: int = limits.EXCEL_DUMP_CHARS) -> str:
        """The workbook as text."""
        return str((await self._operate(content, do="dump", compact=compact, most=most))["text"])

    async def get(self, content: bytes, area: str) -> str:
        """Cells as text."""
        return str((await self._operate(content, do="get", area=area, most=limits.EXCEL_TOOL_CELLS))["text"])

    async def edit(self, content: bytes, area: str, value: Any) -> Edited:
        """The workbook with a typed value in these cells, and what they show now."""
        request = {"do": "edit", "area": area, "value": value, "most": limits.EXCEL_TOOL_CELLS, "shown": _CELLS_SHOWN}
        result = await self._call(content, request)
        return Edited(result.files[BOOK], str(_result(result)["text"]))

    async def read(
        self,
        content: bytes,
        cells: Mapping[str, Sequence[str]],
        cases: Sequence[Mapping[str, Mapping[str, Any]]] = (),
        *,
        styles: bool = False,
    ) -> dict[str, Any]:
        """Values of cells after recalculation, and for each case after the cells it names were changed."""
        read = await self._operate(content, do="read", cells=cells, cases=list(cases), styles=styles)
        found = None
        if self._asks and needs_opinion(read):
            found = await self._io.run(lambda: self._second.values(content, cells, cases))
        return read if found is None else with_opinion(read, found)

    async def expect(self, content: bytes, position: str, sheet: str | None = None) -> dict[str, Any]:
        """What an answer workbook holds at a position."""
        return await self._operate(content, do="expect", position=position, sheet=sheet, most=limits.EXCEL_ANSWER_CELLS)

    async def _operate(self, content: bytes, **request: Any) -> dict[str, Any]:
        return _result(await self._call(content, request))

    async def _call(self, content: bytes, request: Mapping[str, Any]) -> Result:
        files = {BOOK: content, REQUEST: json.dumps(request, ensure_ascii=False).encode()}
        return await self.run(Call(_OPERATE, files=files, outputs=[RESULT, BOOK], limits=_LIMITS))

    async def run_code(self, code: str, files: Mapping[str, bytes], output: str) -> Result:
        """Run a model's code beside these files; `output` is the one wanted."""
        return await self.run(Call(code, files=files, outputs=[output], limits=_LIMITS))


_CELLS_SHOWN = 3
"""Changed cells that the result of an edit shows."""


def _result(result: Result) -> dict[str, Any]:
    if result.ended_by in ("wall", "killed"):
        raise SandboxError("The machine was too busy to compute a workbook in time. Run fewer rollouts at once.")
    if result.ended_by is not None or RESULT not in result.files:
        raise WorkbookError(f"The workbook cannot be computed: {why_ended(result)}. Make it smaller or simpler.")
    done: dict[str, Any] = json.loads(result.files[RESULT])
    if "error" in done:
        raise WorkbookError(str(done["error"]))
    return done


def why_ended(result: Result) -> str:
    """Why a call ended before it was done."""
    if result.ended_by in _WHY_ENDED:
        return _WHY_ENDED[result.ended_by].format(
            wall=_LIMITS.wall_seconds, cpu=_LIMITS.cpu_seconds, memory=_LIMITS.memory_bytes
        )
    return result.stderr.strip().splitlines()[-1] if result.stderr.strip() else f"it ended with {result.exit}"
