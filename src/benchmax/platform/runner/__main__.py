"""`python -m benchmax.platform.runner`: what the daemon starts."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from contextlib import closing

from benchmax.config import setting
from benchmax.errors import BenchmaxError
from benchmax.platform.runner.jobs import venv_cleanup
from benchmax.platform.runner.supervisor import Supervisor
from benchmax.platform.store.database import open_database
from benchmax.platform.store.datadir import DataDir


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmax.platform.runner")
    parser.add_argument("--data", help="data directory (BENCHMAX_DATA, ~/.benchmax)")
    parser.add_argument("--database-url", default=setting("DATABASE_URL") or None)
    parser.add_argument("--policy", choices=["adopt", "stop"], default="adopt", help="runs when the runner dies")
    parser.add_argument("--wait", type=float, default=0.0, help="seconds for another runner here to end")
    given = parser.parse_args()
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("benchmax").setLevel(logging.INFO)
    os.umask(0o077)
    data = DataDir(given.data).create()
    try:
        with data.lock("runner", given.wait), closing(open_database(data, given.database_url)) as database:
            supervisor = Supervisor(database, data, policy=given.policy)
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: supervisor.stop())
            venv_cleanup.keep_tidy(database, data)
            supervisor.run()
    except BenchmaxError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
