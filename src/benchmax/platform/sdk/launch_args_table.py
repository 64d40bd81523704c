"""The launch arguments as a table for people."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from benchmax.platform.sdk.requests.launches import LaunchArgSpec, list_launch_args

if TYPE_CHECKING:
    from benchmax.platform.sdk.transport import Exchange

_TABLE_COLUMNS = 120
"""A narrower terminal makes the table unreadable."""


async def print_launch_args(exchange: Exchange) -> None:
    """Print the launch arguments: as a table where there is room for one, else two lines for each."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    rows = [_cells(spec) for spec in await exchange.ask(list_launch_args())]
    console = Console()
    if not console.is_jupyter and (not console.is_terminal or console.width < _TABLE_COLUMNS):
        for name, kind, default, bounds, meaning in rows:
            facts = f"{name}  {kind}" + (f" = {default}" if default else "") + (f"  ({bounds})" if bounds else "")
            print(f"{facts}\n    {meaning}")  # noqa: T201
        return
    table = Table(title=f"Launch arguments of {exchange.base_url}")
    for column in ("argument", "type", "default", "range", "meaning"):
        table.add_column(column, no_wrap=column == "argument", overflow="fold")
    for row in rows:
        table.add_row(*map(escape, row))
    console.print(table)


def _cells(spec: LaunchArgSpec) -> tuple[str, str, str, str, str]:
    """Name, type, default, range and meaning of an argument."""
    default = "" if spec.default is None else json.dumps(spec.default)
    bounds = ", ".join(spec.enum) if spec.enum else _range(spec)
    return spec.name, spec.type, default, bounds, spec.description


def _range(spec: LaunchArgSpec) -> str:
    if spec.min is None and spec.max is None:
        return ""
    return f"{_number(spec.min)} – {_number(spec.max)}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{int(value):,}" if value == int(value) else f"{value:g}"
