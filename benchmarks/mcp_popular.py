"""Widely used MCP servers, unmodified, through the pool: which start, stay apart, forget at a reset and leave nothing.

    python benchmarks/mcp_popular.py [NAME …] [--write] [--json]

The list and the trial are those of tests/support/mcp_popular.py; packages are installed into .cache/mcp-popular.
`--write` puts the table into docs/mcp.md. The exit code is 1 when a server failed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:] = [each for each in sys.path if Path(each or ".").resolve() != HERE]  # mcp.py would hide the SDK
sys.path.insert(0, str(HERE.parent / "tests" / "support"))

from mcp_popular import POPULAR, Outcome, Popular, install, trial  # noqa: E402

PAGE = HERE.parent / "docs" / "mcp.md"
PLACE = re.compile(r"(?<=<!-- popular -->\n).*?(?=\n<!-- /popular -->)", re.DOTALL)


@dataclass
class Row:
    server: Popular
    outcome: Outcome | None
    failure: str = ""

    def cells(self) -> list[str]:
        about = [f"`{self.server.package}` {self.server.version}", "npm" if self.server.npm else "PyPI"]
        if self.outcome is None:
            return [*about, self.server.habit, self.failure, "", "", "", ""]
        seen = self.outcome
        checks = ["yes" if each else "no" for each in (seen.isolated, seen.forgotten)]
        start = f"{seen.start_ms / 1000:.1f} s"
        return [*about, self.server.habit, str(seen.tools), f"{seen.forked}, {start}", *checks, str(seen.left)]


HEAD = ["server", "from", "habit", "tools", "start", "isolated", "reset is clean", "processes left"]


def measure(server: Popular) -> Row:
    if server.needs is not None and shutil.which(server.needs) is None:
        return Row(server, None, f"not tried: needs {server.needs}")
    installed, missing = install(server)
    if missing is not None:
        return Row(server, None, f"not tried: {missing}")
    folder = Path(tempfile.mkdtemp())
    try:
        return Row(server, trial(server, installed, folder))
    except Exception as error:
        return Row(server, None, f"failed: {' '.join(str(error).split())[:200]}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def table(rows: list[Row]) -> str:
    lines = [HEAD, ["---"] * len(HEAD), *(row.cells() for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="packages; all, if not told")
    parser.add_argument("--write", action="store_true", help="put the table into docs/mcp.md")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = []
    for server in POPULAR:
        if not options.names or server.package in options.names:
            rows.append(measure(server))
            print(" ".join(rows[-1].cells()), file=sys.stderr)
    if options.write:
        PAGE.write_text(PLACE.sub(lambda _: table(rows), PAGE.read_text("utf-8")), "utf-8")
    if options.json:
        told = [
            {"package": row.server.package, "outcome": row.outcome and asdict(row.outcome), "failure": row.failure}
            for row in rows
        ]
        print(json.dumps(told, indent=2))
    else:
        print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n{table(rows)}")
    return 1 if any(row.outcome is None for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
