"""`benchmax limits`"""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from benchmax.cli.output import print_json, print_table
from benchmax.limits import TABLE


def limits(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Print every limit with its unit."""
    if as_json:
        print_json([limit._asdict() for limit in TABLE])
        return
    table = Table("limit", "value", "unit", "what it bounds", box=None, header_style="bold")
    for limit in TABLE:
        table.add_row(limit.name, f"{limit.value:,}", limit.unit, limit.meaning)
    print_table(table)
