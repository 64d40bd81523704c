"""Seccomp: system calls that a call's code has no need of are refused, in it and all that it starts.

The filter is a list of what is refused, not of what is allowed: programs of all kinds are to run. Refused are looking
into other processes, mounts and namespaces, kernel modules, keys, BPF, performance counters, io_uring (which goes
around filters), memory that no process is charged for, handles instead of names, the clock, and sockets of families
that were not asked for; and every call that is newer than this list. Calls of another architecture end the process.

From Linux 5.5 on, the server is notified of each refusal, so that the log names it.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import functools
import struct

from . import kernel

_NUMBERS = {
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "pidfd_getfd": (438, 438), "process_madvise": (440, 440), "perf_event_open": (298, 241), "bpf": (321, 280),
    "userfaultfd": (323, 282), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41),
    "chroot": (161, 51), "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467), "unshare": (272, 97), "setns": (308, 268), "swapon": (167, 224),
    "swapoff": (168, 225), "reboot": (169, 142), "sethostname": (170, 161), "setdomainname": (171, 162),
    "iopl": (172, -1), "ioperm": (173, -1), "modify_ldt": (154, -1), "kexec_load": (246, 104),
    "kexec_file_load": (320, 294), "create_module": (174, -1), "init_module": (175, 105),
    "finit_module": (313, 273), "delete_module": (176, 106), "add_key": (248, 217), "request_key": (249, 218),
    "keyctl": (250, 219), "acct": (163, 89), "settimeofday": (164, 170), "clock_settime": (227, 112),
    "syslog": (103, 116), "quotactl": (179, 60), "quotactl_fd": (443, 443), "lookup_dcookie": (212, 18),
    "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265), "fanotify_init": (300, 262),
    "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195), "semget": (64, 190), "semop": (65, 193),
    "semtimedop": (220, 192), "semctl": (66, 191), "msgget": (68, 186), "msgsnd": (69, 189), "msgrcv": (70, 188),
    "msgctl": (71, 187), "mq_open": (240, 180), "migrate_pages": (256, 238), "move_pages": (279, 239),
    "vhangup": (153, 58), "uselib": (134, -1), "ustat": (136, -1), "sysfs": (139, -1), "nfsservctl": (180, 42),
}  # fmt: skip
"""Refused whatever their arguments: the numbers on x86_64 and aarch64."""
_ABSENT = {"clone3": 435, "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "memfd_secret": 447}
"""Answered as by a kernel that does not know them: programs try them and have another way. Of clone3, whose flags a
filter cannot see, that is clone."""
_MEMFD_CREATE = (319, 279)
"""Absent too: what is in such a file is no process's memory, and bounded by nothing."""
_CLONE, _SOCKET, _IOCTL, _MMAP = (56, 220), (41, 198), (16, 29), (9, 222)
_SENDTO, _SENDMSG, _SENDMMSG = (44, 206), (46, 211), (307, 269)
_NEWEST = 469
_X32 = 0x40000000

_NAMESPACES = 0x7E020000
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_FASTOPEN = 0x20000000
"""Of sendto and its like: connects without asking Landlock."""
_SHARED_ANONYMOUS, _KIND_OF_MEMORY, _HUGE = 0x21, 0x2F, 0x40000
"""Of mmap: memory that stays when no process is seen to have it, see `resource_usage`."""
_UNIX, _INET, _INET6, _NETLINK = 1, 2, 10, 16
_STREAM, _KIND_OF_SOCKET = 1, 0xF
_PROTOCOLS = (0, 1, 6, 17, 58)
"""ICMP, TCP and UDP; MPTCP would pass Landlock by."""

_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_LOAD, _AND, _JEQ, _JGT, _JSET, _RETURN = 0x20, 0x54, 0x15, 0x25, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_KILL, _ERRNO, _NOTIFY, _ALLOW = 0x80000000, 0x00050000, 0x7FC00000, 0x7FFF0000
_SET_FILTER, _NEW_LISTENER, _NOTIFY_SIZES = 1, 8, 3
_RECEIVE, _SEND = 0xC0502100, 0xC0182101
_NOTICE_BYTES = 80

Code = list[tuple[int, int, int, int]]


class _Program(ctypes.Structure):
    _fields_ = [("count", ctypes.c_ushort), ("code", ctypes.c_void_p)]


def available() -> bool:
    if kernel.MACHINE not in _ARCHITECTURES:
        return False
    try:
        kernel.syscall(kernel.SECCOMP, _NOTIFY_SIZES, 0, bytes(8))
    except OSError:
        return False
    return True


def install(network: str) -> int:
    """Filter this process and its children. Returns the descriptor that reports refusals, or -1.

    `network`: `none`, `host`, or `serve`: TCP alone, to be called.
    """
    try:
        return _install(_NOTIFY, _NEW_LISTENER, network)
    except OSError:  # an old kernel, or a filter above this one that already has a listener
        return _install(_ERRNO | errno.EPERM, 0, network)


def refusal(listener: int) -> str | None:
    """The name of what was just tried; it is answered with EPERM. None when who tried is gone."""
    notice = bytearray(_NOTICE_BYTES)
    try:
        fcntl.ioctl(listener, _RECEIVE, notice)
        identifier, _, _, number = struct.unpack_from("QIIi", notice)
        fcntl.ioctl(listener, _SEND, bytearray(struct.pack("QqiI", identifier, 0, -errno.EPERM, 0)))
    except OSError:
        return None
    return _names().get(number, f"system call {number}")


def _names() -> dict[int, str]:
    column = _ARCHITECTURES[kernel.MACHINE][0]
    special = {"clone": _CLONE, "socket": _SOCKET, "ioctl": _IOCTL, "mmap": _MMAP}
    special.update(sendto=_SENDTO, sendmsg=_SENDMSG, sendmmsg=_SENDMMSG)
    return {numbers[column]: name for name, numbers in {**_NUMBERS, **special}.items()}


@functools.cache
def _assembled(refuse: int, network: str) -> bytes:
    """Kept, so that a process that forks for each call has it ready."""
    return b"".join(struct.pack("HBBI", *each) for each in _filter(refuse, network))


def prepare() -> None:
    """Assemble ahead of time what `install` will need."""
    for network in ("none", "host", "serve"):
        _assembled(_NOTIFY, network)


def _install(refuse: int, flags: int, network: str) -> int:
    code = _assembled(refuse, network)
    held = ctypes.create_string_buffer(code, len(code))
    program = _Program(len(code) // 8, ctypes.addressof(held))
    found = kernel.syscall(kernel.SECCOMP, _SET_FILTER, flags, ctypes.byref(program))
    return found if flags else -1


def _filter(refuse: int, network: str) -> Code:
    column, architecture = _ARCHITECTURES[kernel.MACHINE]
    absent, no = _ERRNO | errno.ENOSYS, [(_RETURN, 0, 0, refuse)]
    code: Code = [
        (_LOAD, 0, 0, _ARCHITECTURE), (_JEQ, 1, 0, architecture), (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
    ]  # fmt: skip
    if column == 0:
        code += [(_JSET, 0, 1, _X32), (_RETURN, 0, 0, _KILL)]
    code += [(_JGT, 0, 1, _NEWEST), (_RETURN, 0, 0, absent)]
    for numbers in _NUMBERS.values():
        code += _when(numbers[column], no)
    for number in (*_ABSENT.values(), _MEMFD_CREATE[column]):
        code += _when(number, [(_RETURN, 0, 0, absent)])
    code += _when(_CLONE[column], _flagged(0, _NAMESPACES, refuse))
    code += _when(_IOCTL[column], _listed(1, (_TIOCSTI, _TIOCLINUX), refuse, _ALLOW))
    code += _when(_SENDTO[column], _flagged(3, _FASTOPEN, refuse))
    code += _when(_SENDMSG[column], _flagged(2, _FASTOPEN, refuse))
    code += _when(_SENDMMSG[column], _flagged(3, _FASTOPEN, refuse))
    code += _when(_MMAP[column], _memory(refuse))
    code += _when(_SOCKET[column], _sockets(refuse, network))
    return [*code, (_RETURN, 0, 0, _ALLOW)]


def _memory(refuse: int) -> Code:
    shared = _when(_SHARED_ANONYMOUS, [(_RETURN, 0, 0, refuse)])
    kind = [(_AND, 0, 0, _KIND_OF_MEMORY), *shared, (_RETURN, 0, 0, _ALLOW)]
    return [_argument(3), (_JSET, 0, 1, _HUGE), (_RETURN, 0, 0, refuse), *kind]


def _sockets(refuse: int, network: str) -> Code:
    if network == "none":
        return _listed(0, (_UNIX,), _ALLOW, refuse)
    internet = _listed(2, _PROTOCOLS, _ALLOW, refuse)
    if network == "serve":
        internet = [_argument(1), (_AND, 0, 0, _KIND_OF_SOCKET), *_when(_STREAM, internet), (_RETURN, 0, 0, refuse)]
    routes = _listed(2, (0,), _ALLOW, refuse)
    return [
        _argument(0),
        *_when(_UNIX, [(_RETURN, 0, 0, _ALLOW)]),
        *_when(_NETLINK, routes),
        *_when(_INET, internet),
        *_when(_INET6, internet),
        (_RETURN, 0, 0, refuse),
    ]


def _when(value: int, then: Code) -> Code:
    """If the loaded number is this, do that; `then` ends with a return. A number of -1 is none of this machine's."""
    return [(_JEQ, 0, len(then), value), *then] if value >= 0 else []


def _argument(index: int) -> tuple[int, int, int, int]:
    """Load the lower half of an argument; all that are looked at are of 32 bits. Both machines are little-endian."""
    return _LOAD, 0, 0, _ARGUMENTS + 8 * index


def _flagged(index: int, flags: int, then: int) -> Code:
    return [_argument(index), (_JSET, 0, 1, flags), (_RETURN, 0, 0, then), (_RETURN, 0, 0, _ALLOW)]


def _listed(index: int, values: tuple[int, ...], then: int, otherwise: int) -> Code:
    code: Code = [_argument(index)]
    for value in values:
        code += _when(value, [(_RETURN, 0, 0, then)])
    return [*code, (_RETURN, 0, 0, otherwise)]
