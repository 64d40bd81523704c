"""What hostile code tries in a sandbox: each attack prints GOT when it got something, and names the guards against it.

Each of its guards stops the attack alone; without all of them, or with its limits raised, it succeeds. A guard with
`@root` is one only where the sandbox is root's. Several names in one string are taken out together.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

NAMESPACES = "user pid mount proc ipc net"
LANDLOCK = "landlock_files landlock_tcp landlock_scope"
MIB = 1 << 20

PRELUDE = """
import ctypes, json, mmap, os, signal, socket, struct, subprocess, sys, threading, time
F = json.loads(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
def got(what=""):
    print("GOT", what, flush=True)
def syscall(name, *arguments):
    wide = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    result = libc.syscall(F["numbers"][name], *wide)
    if result < 0:
        raise OSError(ctypes.get_errno(), name)
    return result
def ask(kind, address, family=socket.AF_INET, protocol=0):
    with socket.socket(family, kind, protocol) as sock:
        sock.settimeout(10)
        sock.connect(address)
        sock.send(b"?")
        print(sock.recv(100).decode())
print("TRYING", flush=True)
"""


@dataclass(frozen=True)
class Attack:
    name: str
    code: str
    guards: tuple[str, ...] = ()
    also: str = ""
    """Guards that must go, too, for they need one that is taken out."""
    limits: dict[str, Any] = field(default_factory=dict)
    raised: dict[str, Any] = field(default_factory=dict)
    ended_by: str | None = None
    refused: str | None = None
    """The system call that the log names."""
    root_only: bool = False
    beside: bool = False
    """Another call runs meanwhile, with a file `theirs` in its workspace."""
    program: bool = False
    """Run by an interpreter of its own, not by a fork."""
    outputs: tuple[str, ...] = ()
    network: str = "none"


FILES = ("mount", "landlock_files", "uid@root")

ATTACKS = [
    # Files of others
    Attack("read the data folder", "print(open(F['secret']).read())", FILES),
    Attack("list the data folder", "got() if 'secret' in os.listdir(F['data']) else None", FILES),
    Attack("read a key in the home", "print(open(F['home'] + '/.ssh/id_rsa').read())", FILES),
    Attack("read by a link", "os.symlink(F['secret'], 'x'); print(open('x').read())", FILES),
    Attack("read by a hard link", "os.link(F['secret'], 'y'); print(open('y').read())", FILES),
    Attack("read what everybody outside may", "print(open(F['public']).read())", ("mount", "landlock_files")),
    Attack("read the shadow file", "got() if 'root:' in open('/etc/shadow').read() else None", FILES, root_only=True),
    Attack("read root's file in a readable folder", "print(open(F['private']).read())", ("uid",), root_only=True),
    Attack("climb out by ..", "print(open('../' * 20 + F['secret'][1:]).read())", FILES),
    Attack(
        "read another rollout's files",
        "import glob; [print(open(p).read()) for p in glob.glob('/*/*/theirs') if not p.startswith(os.getcwd())]",
        ("mount", "landlock_files"),
        beside=True,
    ),
    Attack(
        "read by what the server has open",
        """
for fd in map(int, os.listdir("/proc/self/fd")):
    try:
        if "theirs" in os.listdir(fd):
            print(os.read(os.open("theirs", os.O_RDONLY, dir_fd=fd), 100).decode())
    except OSError:
        pass
""",
        ("descriptors", LANDLOCK),
        beside=True,
    ),
    Attack("write into a readable folder", "open(F['rows'] + '/new', 'w').write('x'); got()", FILES),
    Attack(
        "leave something outside", "open(F['dropbox'] + '/new', 'w').write('x'); got()", ("mount", "landlock_files")
    ),
    Attack("hand a link out", "os.symlink(F['secret'], 'out')", ("links",), outputs=("out",)),
    Attack("hand a folder's link out", "os.symlink(F['data'], 'out')", ("links",), outputs=("out/secret",)),
    Attack("find secrets in variables", "print(os.environ, open('/proc/self/environ').read())", ("variables",)),
    # Processes of others
    Attack("see other processes", "got() if 'sleep' in open(f'/proc/{F[\"victim\"]}/cmdline').read() else None",
           (NAMESPACES, LANDLOCK)),
    Attack("read another's variables", "print(open(f'/proc/{F[\"victim\"]}/environ').read())",
           (NAMESPACES, LANDLOCK, "uid@root", "capabilities@root")),
    Attack("read another's memory", "open(f'/proc/{F[\"victim\"]}/mem', 'rb'); got()",
           (NAMESPACES, LANDLOCK, "uid@root", "capabilities@root")),
    Attack("go through another's root", "print(open(f'/proc/{F[\"victim\"]}/root' + F['secret']).read())",
           (NAMESPACES, LANDLOCK, "uid@root", "capabilities@root")),
    Attack("signal another process", "os.kill(F['victim'], 0); got()", ("pid proc", "landlock_scope", "uid@root")),
    Attack("trace a process", "got() if libc.ptrace(0, 0, 0, 0) == 0 else None", ("seccomp",), refused="ptrace"),
    Attack(
        "read a process's memory by number",
        """
word = ctypes.create_string_buffer(b"GOT it", 6); into = ctypes.create_string_buffer(6)
def vector(b): return (ctypes.c_ulong * 2)(ctypes.addressof(b), 6)
syscall("process_vm_readv", os.getpid(), vector(into), 1, vector(word), 1, 0)
print(into.raw.decode())
""",
        ("seccomp",),
        refused="process_vm_readv",
    ),
    Attack(
        "outlive the call",
        """
named, names = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for fd in (0, 1, 2):
            os.close(fd)
        libc.prctl(15, F["token"].encode(), 0, 0, 0)
        os.write(names, b".")
        time.sleep(30)
    os._exit(0)
os.read(named, 1)
""",
        ("pid proc",),
    ),
    # The network
    Attack("connect to the platform", "ask(socket.SOCK_STREAM, ('127.0.0.1', F['tcp']))",
           ("net", "landlock_tcp", "seccomp"), refused="socket"),
    Attack("connect to the machine's address", "ask(socket.SOCK_STREAM, (F['address'], F['tcp_any']))",
           ("net", "landlock_tcp", "seccomp"), refused="socket"),
    Attack("send datagrams", "ask(socket.SOCK_DGRAM, ('127.0.0.1', F['udp']))", ("net", "seccomp"), refused="socket"),
    Attack("listen and be called", """
sock = socket.create_server(("127.0.0.1", F["listen"])); sock.settimeout(10)
print(sock.accept()[0].recv(100).decode())
""", ("net", "landlock_tcp", "seccomp"), refused="socket"),
    Attack("connect to an abstract socket", "ask(socket.SOCK_STREAM, '\\0' + F['abstract'], socket.AF_UNIX)",
           ("net", "landlock_scope")),
    Attack("connect to a socket in the data folder", "ask(socket.SOCK_STREAM, F['socket'], socket.AF_UNIX)",
           ("mount", "uid@root")),
    Attack("look at the network's interfaces", "got() if set(socket.if_nameindex()) - {(1, 'lo')} else None",
           ("net", "seccomp"), refused="socket"),
    Attack("a socket of a rare family", "socket.socket(40, socket.SOCK_STREAM); got()", ("seccomp",), refused="socket"),
    Attack("connect to a closed port", "ask(socket.SOCK_STREAM, ('127.0.0.1', F['tcp']))", ("landlock_tcp",),
           network="host"),
    Attack("connect to a closed port by MPTCP",
           "ask(socket.SOCK_STREAM, ('127.0.0.1', F['tcp']), protocol=262)", ("seccomp",), network="host",
           refused="socket"),
    Attack("connect to a closed port by Fast Open", """
sock = socket.socket(); sock.sendto(b"?", 0x20000000, ("127.0.0.1", F["tcp"]))
print(sock.recv(100).decode())
""", ("seccomp",), network="host", refused="sendto"),
    # Time
    Attack("take its time", "time.sleep(F['wait']); got()", limits={"wall_seconds": 1.0}, raised={"wall_seconds": 20},
           ended_by="wall"),
    Attack("ignore signals",
           "[signal.signal(n, signal.SIG_IGN) for n in (1, 2, 3, 15, 24)]; time.sleep(F['wait']); got()",
           limits={"wall_seconds": 1.0}, raised={"wall_seconds": 20}, ended_by="wall"),
    Attack("burn the processor in many processes", """
for _ in range(4):
    if os.fork() == 0:
        while time.process_time() < 0.6:
            pass
        os._exit(0)
[os.wait() for _ in range(4)]
got()
""", limits={"cpu_seconds": 0.5, "wall_seconds": 30}, raised={"cpu_seconds": 60, "wall_seconds": 60},
           ended_by="cpu"),
    # Numbers
    Attack("fork without end", """
made = 0
try:
    while made < 80:
        if os.fork() == 0:
            time.sleep(30)
        made += 1
finally:
    got() if made == 80 else None
""", limits={"processes": 20}, raised={"processes": 200}),
    Attack("start threads without end", """
for _ in range(80):
    threading.Thread(target=time.sleep, args=(30,), daemon=True).start()
got()
""", limits={"processes": 20}, raised={"processes": 200}),
    Attack("open files without end", "[os.open('/dev/null', 0) for _ in range(200)]; got()",
           limits={"open_files": 64}, raised={"open_files": 500}),
    Attack("print without end", "[sys.stdout.write('x' * 65536) for _ in range(128)]; got()",
           limits={"output_bytes": MIB}, raised={"output_bytes": 64 * MIB}, ended_by="output"),
    Attack("fill the disk", "open('a', 'wb').write(bytes(9 << 20)); open('/tmp/b', 'wb').write(bytes(9 << 20)); got()",
           limits={"disk_bytes": 16 * MIB}, raised={"disk_bytes": 64 * MIB}),
    Attack("fill the disk by shared memory's folder", "open('/dev/shm/a', 'wb').write(bytes(17 << 20)); got()",
           limits={"disk_bytes": 16 * MIB}, raised={"disk_bytes": 64 * MIB}),
    Attack("make files without end", "[os.close(os.open(str(n), os.O_CREAT)) for n in range(6000)]; got()",
           limits={"disk_bytes": 16 * MIB}, raised={"disk_bytes": 64 * MIB}),
    Attack("make a file that is large on paper", "os.truncate(os.open('a', os.O_CREAT | os.O_RDWR), 1 << 30); got()",
           limits={"disk_bytes": 16 * MIB}, raised={"disk_bytes": 2048 * MIB}),
    # Memory
    Attack("take memory", "x = bytearray(300 << 20); got()",
           limits={"memory_bytes": 100 * MIB}, raised={"memory_bytes": 1024 * MIB}),
    Attack("take memory by another program", "x = b'x' * (300 << 20); time.sleep(F['wait']); got()", program=True,
           limits={"memory_bytes": 100 * MIB}, raised={"memory_bytes": 1024 * MIB}, ended_by="memory"),
    Attack("take memory in many processes", """
for _ in range(6):
    if os.fork() == 0:
        x = b"x" * (40 << 20); time.sleep(F['wait'] + 1); os._exit(0)
time.sleep(F['wait']); got()
""", limits={"memory_bytes": 128 * MIB}, raised={"memory_bytes": 1024 * MIB}, ended_by="memory"),
    Attack("take memory and hide", """
for _ in range(6):
    if os.fork() == 0:
        libc.prctl(4, 0, 0, 0, 0); x = b"x" * (40 << 20); time.sleep(F['wait'] + 1); os._exit(0)
time.sleep(F['wait']); got()
""", limits={"memory_bytes": 128 * MIB}, raised={"memory_bytes": 1024 * MIB}, ended_by="memory"),
    Attack("take shared memory and let go", """
m = mmap.mmap(-1, 320 << 20)
for at in range(0, 320 << 20, 16 << 20):
    m[at:at + (16 << 20)] = b"x" * (16 << 20); m.madvise(mmap.MADV_DONTNEED, at, 16 << 20)
time.sleep(F['wait']); got()
""", ("seccomp",), limits={"memory_bytes": 128 * MIB}, refused="mmap"),
    Attack("take memory by a file in memory", """
fd = os.memfd_create("x")
for _ in range(20):
    os.write(fd, b"x" * (16 << 20))
time.sleep(F['wait']); got()
""", ("seccomp",), limits={"memory_bytes": 128 * MIB, "disk_bytes": 512 * MIB}),
    Attack("take memory of System V", "syscall('shmget', 0, 320 << 20, 0o1600); got()", ("seccomp",),
           limits={"memory_bytes": 128 * MIB}, refused="shmget"),
    Attack("take memory of a device", "mmap.mmap(os.open('/dev/zero', os.O_RDWR), 1 << 20); got()",
           ("mount", "landlock_files")),
    Attack("take memory in page tables", """
m = mmap.mmap(-1, 128 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000, prot=mmap.PROT_READ)
[m[at] for at in range(0, 128 << 30, 2 << 20)]
time.sleep(F['wait']); got()
""", limits={"memory_bytes": 128 * MIB}, raised={"memory_bytes": 1024 * MIB}, ended_by="memory"),
    Attack("take memory in sockets", """
pairs = [socket.socketpair() for _ in range(400)]
for one, _ in pairs:
    one.setblocking(False)
    try:
        while True:
            one.send(bytes(65536))
    except BlockingIOError:
        pass
time.sleep(F['wait']); got()
""", limits={"memory_bytes": 128 * MIB, "open_files": 1000}, raised={"memory_bytes": 1024 * MIB, "open_files": 1000},
           ended_by="memory"),
    # Rights
    Attack("become root by a setuid program", """
for _ in range(30):
    p = subprocess.Popen(["/usr/bin/su"], stdin=-1, stdout=-1, stderr=-1)
    try:
        uids = open(f"/proc/{p.pid}/status").read().split("Uid:")[1].split()
    except OSError:
        continue
    if uids[1] == "0":
        got(); break
""", (NAMESPACES, "no_new_privs"), also=f"{LANDLOCK} seccomp"),
    Attack("a user namespace of its own", "libc.unshare(0x10000000) or got()", ("seccomp",), refused="unshare"),
    Attack("a namespace by clone", """
pid = syscall("clone", 0x10000000 | 17, 0, 0, 0, 0)
os._exit(0) if pid == 0 else got()
""", ("seccomp",), refused="clone"),
    Attack("a namespace by clone3", """
pid = syscall("clone3", struct.pack("8Q", 0x10000000, 0, 0, 0, 17, 0, 0, 0), 64)
os._exit(0) if pid == 0 else got()
""", ("seccomp",)),
    Attack("mount something", """
assert libc.unshare(0x10020000) == 0
libc.mount(b"x", b"/tmp", b"tmpfs", 0, None) or got()
""", ("seccomp", LANDLOCK), refused="unshare"),
    Attack("change its root", "os.chroot('/tmp'); got()", ("seccomp", "capabilities"), refused="chroot"),
    Attack("keep a key in the kernel", "syscall('add_key', b'user', b'x', b'y', 1, -1); got()", ("seccomp",),
           refused="add_key"),
    Attack("handle faults in user space", "syscall('userfaultfd', 1); got()", ("seccomp",), refused="userfaultfd"),
    Attack("go around filters by io_uring",
           "syscall('io_uring_setup', 8, ctypes.create_string_buffer(120)); got()", ("seccomp",)),
    Attack("count the processor's events", """
attributes = bytearray(128); struct.pack_into("IIQ", attributes, 0, 1, 128, 1)
struct.pack_into("Q", attributes, 40, 0x60)
syscall("perf_event_open", bytes(attributes), 0, -1, -1, 0); got()
""", ("seccomp",), refused="perf_event_open"),
    Attack("call the kernel as an older machine", """
code = mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=7)
code.write(b"\\xb8\\x14\\x00\\x00\\x00\\xcd\\x80\\xc3")
ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))() > 0 and got()
""", ("seccomp",)),
    Attack("read System V memory of others", """
libc.shmat.restype = ctypes.c_void_p
number = syscall("shmget", F["shm"], 0, 0)
print(ctypes.string_at(libc.shmat(number, None, 0), 20).decode())
""", ("ipc", "seccomp"), refused="shmget"),
]  # fmt: skip
