"""`python as_user.py NAME PROGRAM …`: run a Python program as another user, who can reach the interpreter.

An interpreter below root's home is closed to everybody else. In a mount namespace of its own it is not.
"""

from __future__ import annotations

import os
import pwd
import sys

from benchmax.sandbox.inside import kernel


def open_up(path: str) -> None:
    """Cover the first folder on the way to `path` that others cannot pass, with one that they can."""
    tree = kernel.clone_tree(path)
    parts = path.split("/")
    for depth in range(2, len(parts) + 1):
        above = "/".join(parts[:depth])
        if not os.stat(above).st_mode & 0o001:
            kernel.mount("tmpfs", above, "tmpfs", 0, "size=1m,mode=755")
            os.makedirs(path)
            kernel.attach_tree(tree, path)
            return


def main() -> None:
    user = pwd.getpwnam(sys.argv[1])
    kernel.unshare(kernel.NEWNS)
    kernel.make_private()
    open_up(os.path.realpath(sys.base_prefix))
    if user.pw_uid:
        os.setgroups([])
        os.setresgid(user.pw_gid, user.pw_gid, user.pw_gid)
        os.setresuid(user.pw_uid, user.pw_uid, user.pw_uid)
    os.environ["HOME"] = "/nonexistent"
    os.execv(sys.executable, [sys.executable, *sys.argv[2:]])


if __name__ == "__main__":
    main()
