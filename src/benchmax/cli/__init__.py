"""The command line: one file for each group of commands, no logic of its own.

`app` lists the commands, `plugin_commands` those of installed packages; `local` holds those of this machine, `platform`
those of a platform. `output` and `tables` print, `exit_codes` lists exit codes, `progress` shows progress, `project`
finds the environment and rows that arguments name.
"""

from __future__ import annotations

import errno
import sys

_INTERRUPTED = 130
_ADVICE = {
    errno.ENOSPC: "Free some space, then go on.",
    errno.EDQUOT: "Free some space, then go on.",
    errno.EFBIG: "The file is larger than this disk or user may have (ulimit -f): choose another place.",
    errno.EISDIR: "Name a file, not a folder.",
    errno.ENOTDIR: "A part of the path is a file: choose another path.",
    errno.EEXIST: "A file is in the way: choose another path.",
    errno.ENOENT: "Check the path.",
    errno.EACCES: "Check the file's permissions, or choose another path.",
    errno.EPERM: "Check the file's permissions, or choose another path.",
    errno.EROFS: "The disk is read-only: choose another path.",
    errno.ENAMETOOLONG: "Choose a shorter name.",
    errno.EMFILE: "Raise the limit of open files (ulimit -n), or lower --concurrency.",
    errno.EADDRINUSE: "Choose another port.",
    errno.ENOMEM: "Use a smaller model, or end what else uses the memory.",
}


def main() -> None:
    """Run the command line; a user's mistake is one clear line, never a traceback."""
    try:
        _main()
    except KeyboardInterrupt:  # also while the commands are being imported
        sys.exit(_INTERRUPTED)


def _main() -> None:
    from benchmax.cli.app import app_for
    from benchmax.cli.exit_codes import AUTH, FAILED, NOT_FOUND, USAGE
    from benchmax.cli.output import stop
    from benchmax.errors import BenchmaxError, NotFoundError, UsageError
    from benchmax.extras import explain

    try:
        app_for(sys.argv[1:])()
    except BenchmaxError as error:
        kind = NOT_FOUND if isinstance(error, NotFoundError) else USAGE
        stop(str(error), kind if isinstance(error, UsageError) else FAILED)
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        hint = _ADVICE.get(error.errno or 0, "Check the path, the disk and the network, then try again.")
        code = AUTH if isinstance(error, PermissionError) and error.errno is None else FAILED
        stop(f"{error.strerror or error}{where}. {hint}", code)
    except Exception as error:
        if isinstance(error, ImportError) and (advice := explain(error)) is not None:
            stop(advice, USAGE)
        if (reason := _unexpected(error)) is None:
            raise
        stop(reason, FAILED)


def _unexpected(error: Exception) -> str | None:
    """What to say of an error that is none of ours, if it is not a bug of ours either."""
    from benchmax.cli.app import command_of
    from benchmax.cli.plugin_commands import failure
    from benchmax.memory import out_of_memory

    if out_of_memory(error):
        return (
            "Out of memory. Use a smaller model, a smaller group (rollouts.group_size) or a shorter limit "
            "(rollouts.max_new_tokens), or end what else uses the memory."
        )
    broken = failure(error, command_of(sys.argv[1:]))
    return str(broken) if broken else None
