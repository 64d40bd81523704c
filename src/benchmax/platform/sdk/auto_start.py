"""The platform on this machine, which a client starts in the background when no other is named."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

from benchmax import config, extras
from benchmax.config import data_dir
from benchmax.errors import ConfigError
from benchmax.files.atomic import read_object
from benchmax.net.origins import origin


def this_machine_url() -> str:
    """The platform on this machine, started in the background when it does not run."""
    if (url := local_url()) is not None and answers(url):
        return url
    if config.setting("NO_AUTO_START"):
        raise ConfigError(
            f"No platform runs on {data_dir()}, and BENCHMAX_NO_AUTO_START forbids starting one. Run `benchmax up`, "
            "or name a platform with CASTFORM_PLATFORM_URL."
        )
    if extras.missing("platform"):
        raise ConfigError(
            f"A platform on this machine needs an extra: {extras.install('platform')}. "
            "Or name a platform elsewhere with CASTFORM_PLATFORM_URL."
        )
    command = [sys.executable, "-P", "-m", "benchmax.platform.daemon", "--data", str(data_dir()), "--ensure"]
    started = subprocess.run(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
    if started.returncode:
        raise ConfigError("The platform of this machine did not start; it says why above.")
    return started.stdout.strip()


def local_url(folder: Path | None = None) -> str | None:
    """The address of the server that runs on a data directory now, by default this machine's."""
    info = read_object((folder or data_dir()) / "server.json")
    try:
        os.kill(int(info["pid"]), 0)
        return str(info["url"])
    except (KeyError, ValueError, TypeError, OSError, OverflowError):
        return None


def answers(url: str) -> bool:
    """Whether a server listens at an address."""
    try:
        with socket.create_connection(origin(url)[1:], timeout=1.0):
            return True
    except OSError:
        return False
