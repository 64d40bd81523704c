"""The tools as an MCP server on standard input and output: `python -m benchmax.envs.excel.mcp_server`.

The rollout's workbooks lie in its directory; `names.json` there says which is the input and which the output. Code runs
in a sandbox inside of the server's own confinement, where Linux allows no mounts. So that sandbox has no file tree of
its own and nothing loaded: code can read what the server can, and a call takes the time of its imports.
"""

from __future__ import annotations

import asyncio
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from benchmax import limits
from benchmax.envs.excel.tools import INPUT, NAMES_FILE, OUTPUT, TOOLS, RolloutFiles, call_tool
from benchmax.envs.excel.workbook_sandbox import WorkbookSandbox
from benchmax.envs.mcp.tool_server import serve_tools
from benchmax.files.links import read_plain

MODULES = ("openpyxl", "ironcalc")
"""Loaded by each server: pandas would double what a server needs, and can be imported by the code itself."""


async def call(name: str, given: dict[str, Any]) -> str:
    files = _files()
    before = dict(files.written)
    text = await call_tool(_books(), files, name, given)
    for written, content in files.written.items():
        if before.get(written) != content:
            await asyncio.to_thread(Path(written).write_bytes, content)
    return text


def _files() -> RolloutFiles:
    """The workbooks in the rollout's directory."""
    try:
        names = json.loads(_content(NAMES_FILE))
    except FileNotFoundError:
        names = {}
    source, output = names.get("input", INPUT), names.get("output", OUTPUT)
    others = {path.name for path in Path().glob("*.xlsx") if path.is_file()} - {source}
    return RolloutFiles(_content(source), source, output, {name: _content(name) for name in others})


def _content(name: str) -> bytes:
    return read_plain(Path(), name, limits.EXCEL_FILE_BYTES)


@lru_cache(maxsize=1)
def _books() -> WorkbookSandbox:
    return WorkbookSandbox(MODULES, insist=True)


if __name__ == "__main__":
    asyncio.run(serve_tools("excel", TOOLS.values(), call))
