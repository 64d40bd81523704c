"""`python -m benchmax.platform.daemon`: what `benchmax up` starts."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from benchmax.config import setting
from benchmax.errors import BenchmaxError
from benchmax.net.ports import DEFAULT_PORT
from benchmax.platform.daemon.control import ensure_running
from benchmax.platform.daemon.daemon import Daemon
from benchmax.platform.daemon.options import Options
from benchmax.platform.store.datadir import DataDir


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmax.platform.daemon")
    parser.add_argument("--data")
    parser.add_argument("--port", type=int, default=DEFAULT_PORT)
    parser.add_argument("--console", type=Path)
    parser.add_argument("--detach", action="store_true", help="go on in the background")
    parser.add_argument("--ensure", action="store_true", help="start a platform unless one runs, and print its address")
    given = parser.parse_args()
    data = DataDir(given.data)
    try:
        if given.ensure:
            print(ensure_running(data))  # noqa: T201
            return 0
        if given.detach:
            if os.fork():
                return 0
            os.setsid()
        Daemon(Options(data, given.port, setting("DATABASE_URL") or None, given.console)).run()
    except BenchmaxError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
