"""The command line: one file per noun, no logic."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; a user's mistake is one clear line, never a traceback."""
    from benchmax.cli.app import app
    from benchmax.cli.output import AUTH, FAILED, INTERRUPTED, NOT_FOUND, USAGE, stop
    from benchmax.errors import BenchmaxError, NotFoundError, UsageError

    try:
        app()
    except NotFoundError as error:
        stop(str(error), NOT_FOUND)
    except UsageError as error:
        stop(str(error), USAGE)
    except PermissionError as error:
        stop(f"{error}. Check the file's permissions.", AUTH if error.errno is None else FAILED)
    except BenchmaxError as error:
        stop(str(error), FAILED)
    except OSError as error:
        stop(f"{error}.", FAILED)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
