"""`python -m benchmax.platform.server`: what the daemon starts."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmax.config import setting
from benchmax.errors import BenchmaxError
from benchmax.net.ports import DEFAULT_PORT
from benchmax.platform.server.app import serve
from benchmax.platform.server.settings import ServerSettings
from benchmax.platform.store.datadir import DataDir


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmax.platform.server")
    parser.add_argument("--data", help="data directory (BENCHMAX_DATA, ~/.benchmax)")
    parser.add_argument("--database-url", default=setting("DATABASE_URL") or None)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=DEFAULT_PORT)
    parser.add_argument("--public-url")
    parser.add_argument("--allow-host", action="append", default=[])
    parser.add_argument("--trusted-proxy", action="append", default=[])
    parser.add_argument("--console", type=Path)
    parser.add_argument("--wait", type=float, default=0.0, help="seconds for another server here to end")
    given = parser.parse_args()
    settings = ServerSettings(
        data=DataDir(given.data),
        database_url=given.database_url,
        host=given.host,
        port=given.port,
        public_url=given.public_url,
        allowed_hosts=frozenset(name.lower() for name in given.allow_host),
        trusted_proxies=tuple(given.trusted_proxy),
        console=given.console,
    )
    try:
        serve(settings, given.wait)
    except BenchmaxError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
