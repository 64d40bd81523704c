"""The guards by name: what each protects, and which sets of them to try, the strongest first."""

from __future__ import annotations

GUARDS = {
    "user": "a user namespace of its own: no right over anything outside, and processes counted by the call",
    "pid": "a pid namespace of its own: no other process in sight, and none of its own left at the end",
    "mount": "a file tree of its own: the system, the interpreter and what is named, read-only; a bounded tmpfs",
    "proc": "a /proc of its own",
    "ipc": "no System V memory, semaphores or message queues of others",
    "net": "no network but what it is given",
    "uid": "as root: a user number that owns nothing",
    "cgroup": "as root, where asked for: memory and processes of all calls together, bounded by the kernel",
    "capabilities": "no capability, in no set",
    "no_new_privs": "no program gives rights by being run",
    "landlock_files": "files by list, in a second layer",
    "landlock_tcp": "TCP ports by list, in a second layer",
    "landlock_scope": "no signal and no abstract Unix socket to the outside, in a second layer",
    "seccomp": "system calls that no call needs and exploits do are refused",
    "descriptors": "nothing that was open before",
}
_NAMESPACES_ADVICE = (
    "Let users make namespaces: sysctl kernel.unprivileged_userns_clone=1, "
    "kernel.apparmor_restrict_unprivileged_userns=0, user.max_user_namespaces=10000; "
    "in a container, a seccomp profile that allows unshare, mount and pivot_root."
)
ADVICE = {
    **dict.fromkeys(("user", "pid", "mount", "ipc", "net"), _NAMESPACES_ADVICE),
    "proc": "Start the container with an unmasked /proc (Docker: --security-opt systempaths=unconfined).",
    "uid": "Start the container with more user numbers than one, or run as an ordinary user.",
    "cgroup": "Start it in a cgroup that it may divide (systemd: Delegate=yes), with the controllers memory and pids.",
    "landlock_files": "Use Linux 5.13 or later with landlock in CONFIG_LSM.",
    "landlock_tcp": "Use Linux 6.7 or later with landlock in CONFIG_LSM.",
    "landlock_scope": "Use Linux 6.12 or later with landlock in CONFIG_LSM.",
    "seccomp": "Use Linux on x86_64 or aarch64 with CONFIG_SECCOMP_FILTER.",
}
"""What to do about a guard that does not hold; the others always do on Linux."""
FIRST_UID = 0x7A000000
"""As root, each server runs as user number this + its own pid, unless given one: no other user's or server's."""
NOBODY = 65_534
"""Used where that number is not available."""
NAMESPACES = frozenset({"user", "pid", "mount", "proc", "ipc", "net"})
BOUNDARY = frozenset(GUARDS) - {"uid", "cgroup", "proc", "landlock_files", "landlock_tcp", "landlock_scope"}
"""The guards that untrusted code requires. Landlock doubles what the namespaces do."""


def fallbacks(wanted: frozenset[str]) -> list[frozenset[str]]:
    """Sets of guards to try in turn, where the kernel or a container does not allow all of them."""
    found = []
    for missing in ((), ("proc",), ("net",), ("proc", "net"), NAMESPACES):
        for also in ((), ("uid",)):
            if (kept := wanted - {*missing, *also}) not in found:
                found.append(kept)
    return found


def possible(wanted: frozenset[str], root: bool) -> frozenset[str]:
    """Without user namespaces an ordinary user has none of the others; the number of a user is root's to choose."""
    if "user" not in wanted and not (root and "uid" not in wanted):
        wanted -= NAMESPACES
    if "mount" not in wanted or "pid" not in wanted:
        wanted -= {"proc"}
    return wanted if root else wanted - {"uid", "cgroup"}
