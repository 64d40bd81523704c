"""Where installed packages are imported from: what a child with a virtual environment or a sandbox of its own needs."""

from __future__ import annotations

import os
import site
import sys
import sysconfig


def package_folders() -> list[str]:
    """The folders of packages of this interpreter: its own, the user's, and those that paths lead to by a .pth file."""
    own = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *site.getsitepackages()]
    users = [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
    linked = [path for path in sys.path if os.path.basename(path) in ("site-packages", "dist-packages")]
    return list(dict.fromkeys(path for path in (*own, *users, *linked) if os.path.isdir(path)))
