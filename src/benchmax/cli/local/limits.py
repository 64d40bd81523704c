"""`benchmax limits`"""

from __future__ import annotations

from benchmax.cli.output import Json, print_rows
from benchmax.limits import TABLE


def limits(json: Json = False) -> None:
    """Print every limit with its unit."""
    rows = [limit._asdict() for limit in TABLE]
    columns = ("limit", "value", "unit", "what it bounds")
    print_rows(rows, json, columns, lambda row: (row["name"], f"{row['value']:,}", row["unit"], row["meaning"]))
