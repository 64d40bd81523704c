"""What hostile code tries from inside an MCP server: most of `sandbox_attacks`, and what only a server has to take.

Without its guards, or with its limit raised, each succeeds.
"""

from __future__ import annotations

from dataclasses import replace

from sandbox_attacks import ATTACKS, LANDLOCK, MIB, Attack

NOT_OF_SERVERS = {
    "read another rollout's files", "read by what the server has open", "hand a link out", "hand a folder's link out",
    "find secrets in variables", "connect to a closed port by MPTCP", "connect to a closed port by Fast Open",
    "take its time", "ignore signals", "burn the processor in many processes", "print without end", "fill the disk",
    "fill the disk by shared memory's folder", "make files without end", "make a file that is large on paper",
    "take memory", "take memory by another program", "take memory by a file in memory", "take memory in sockets",
    "take memory in page tables", "open files without end", "change its root",
}  # fmt: skip
"""They are about calls that end and give files back, or forks alone; what is like them for servers is below."""

OWN = [
    Attack("read the rewards", "print(open(F['rewards']).read())", ("mount", "landlock_files", "uid@root")),
    Attack("read the configuration by a link", "os.symlink(F['config'], 'z'); print(open('z').read())",
           ("mount", "landlock_files", "uid@root")),
    Attack("read another rollout's files", "print(open(F['theirs']).read())", ("mount", "landlock_files"), beside=True),
    Attack("write another rollout's files", "open(F['theirs'], 'a').write('x'); got()", ("mount", "landlock_files"),
           beside=True),
    Attack("signal another rollout's server", "os.kill(F['other'], 0); got()", ("pid proc", "landlock_scope"),
           beside=True),
    Attack("read another rollout's memory", "open(f'/proc/{F[\"other\"]}/mem', 'rb'); got()",
           ("user pid mount proc ipc net", LANDLOCK), also="seccomp", beside=True),
    Attack("connect to a socket of the system", "ask(socket.SOCK_STREAM, F['public_socket'], socket.AF_UNIX)",
           ("mount",), network="host"),
    Attack("take memory", "x = b'x' * (300 << 20); time.sleep(F['wait']); got()",
           limits={"memory": "150MB"}, raised={"memory": "1GB"}, ended_by="memory"),
    Attack("fill the disk", """
for name in "abc":
    open(name, "wb").write(bytes(9 << 20))
for _ in range(int(F["wait"] * 20)):
    sum(range(200_000)); time.sleep(0.05)
got()
""", limits={"MCP_DISK_BYTES": 16 * MIB}, raised={"MCP_DISK_BYTES": 64 * MIB}, ended_by="disk"),
    Attack("write one large file", "open('a', 'wb').write(bytes(20 << 20)); got()",
           limits={"MCP_DISK_BYTES": 16 * MIB}, raised={"MCP_DISK_BYTES": 64 * MIB}),
]  # fmt: skip


def _for_servers(attack: Attack) -> Attack:
    """Limits of servers have other names."""
    raised = dict(attack.raised)
    limits = dict(attack.limits)
    for given in (limits, raised):
        if "processes" in given:
            given["MCP_PROCESSES"] = given.pop("processes")
        if "memory_bytes" in given:
            given["memory"] = f"{given.pop('memory_bytes') // MIB}MB"
    return replace(attack, limits=limits, raised=raised)


SERVER_ATTACKS = [*(_for_servers(each) for each in ATTACKS if each.name not in NOT_OF_SERVERS), *OWN]
