"""A Slurm cluster of three nodes on this machine, reached as SkyPilot reaches one: by ssh to a login node.

Needs root and the packages slurm-wlm, munge, openssh-server and rsync. Everything it makes (a user, a line per node in
/etc/hosts, a file in /etc/profile.d) is taken away again.
"""

from __future__ import annotations

import os
import pwd
import re
import shlex
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

USER, NODES, SSH_PORT = "bmnode", ("bmn1", "bmn2", "bmn3"), 12_222
PROGRAMS = ("slurmctld", "slurmd", "munged", "sshd", "rsync", "sinfo")
PROFILE = Path("/etc/profile.d/benchmax-test-slurm.sh")
MUNGE = Path("/run/benchmax-test-munge")
_REACH = re.compile(r"(PIP|UV|SSL_CERT|CURL_CA|REQUESTS_CA|HTTPS?_PROXY|NO_PROXY)")
_PATH = "/usr/local/sbin:/usr/sbin:/sbin"


def missing() -> str | None:
    """What keeps this from running here, in words."""
    if os.geteuid() != 0:
        return "a Slurm cluster on this machine needs root"
    absent = [name for name in PROGRAMS if shutil.which(name, path=os.environ["PATH"] + ":" + _PATH) is None]
    return f"needs {', '.join(absent)}: apt-get install slurm-wlm munge openssh-server rsync" if absent else None


@contextmanager
def slurm(folder: Path, uv: Path) -> Iterator[Path]:
    """The cluster, up; gives a home folder in which SkyPilot finds it as slurm/loop."""
    with ExitStack() as stack:
        home = stack.enter_context(_user())
        address = socket.gethostbyname(socket.gethostname())
        stack.enter_context(_hosts(address))
        conf = _configure(folder, address)
        stack.enter_context(_profile(conf, folder, uv))
        _munge(stack, folder)
        environment = {**os.environ, "SLURM_CONF": str(conf)}
        _spawn(stack, folder, "slurmctld", "-D", "-f", str(conf), env=environment)
        for node in NODES:
            _spawn(stack, folder, "slurmd", "-D", "-N", node, "-f", str(conf), env=environment)
        _spawn(stack, folder, "sshd", "-D", "-e", "-f", str(_ssh(folder, home)))
        _wait(lambda: _idle(environment) == len(NODES), "three idle nodes")
        yield _sky_home(folder)


def _munge(stack: ExitStack, folder: Path) -> None:
    MUNGE.mkdir(mode=0o755)
    stack.callback(shutil.rmtree, MUNGE)
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o600)
    files = [f"--{name}-file={folder}/munge.{name}" for name in ("pid", "log", "seed")]
    _spawn(stack, folder, "munged", "--foreground", "--force", f"--key-file={key}", f"--socket={MUNGE}/socket", *files)
    _wait((MUNGE / "socket").exists, "munged")


def _spawn(stack: ExitStack, folder: Path, program: str, *words: str, env: dict[str, str] | None = None) -> None:
    found = shutil.which(program, path=os.environ["PATH"] + ":" + _PATH)
    assert found is not None
    log = open(folder / f"{program}.log", "ab")  # noqa: SIM115 (the process keeps it)
    process = subprocess.Popen([found, *words], stdout=log, stderr=log, env=env, start_new_session=True)

    def end() -> None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        log.close()

    stack.callback(end)


@contextmanager
def _user() -> Iterator[Path]:
    subprocess.run(["useradd", "--create-home", "--shell", "/bin/bash", "--password", "*", USER], check=True)
    try:
        yield Path(pwd.getpwnam(USER).pw_dir)
    finally:
        subprocess.run(["pkill", "-KILL", "-u", USER], check=False)
        _wait(lambda: subprocess.run(["userdel", "--remove", USER], capture_output=True).returncode == 0, "userdel")


@contextmanager
def _hosts(address: str) -> Iterator[None]:
    hosts = Path("/etc/hosts")
    before = hosts.read_text()
    hosts.write_text(before.rstrip("\n") + "\n" + "".join(f"{address} {node}\n" for node in NODES))
    try:
        yield
    finally:
        hosts.write_text(before)


def _configure(folder: Path, address: str) -> Path:
    host = socket.gethostname()
    nodes = "\n".join(
        f"NodeName={node} NodeHostname={host} NodeAddr={address} Port={17_001 + number} CPUs=4 RealMemory=16000"
        for number, node in enumerate(NODES)
    )
    (folder / "state").mkdir()
    conf = folder / "slurm.conf"
    conf.write_text(f"""\
ClusterName=loop
SlurmctldHost={host}({address})
SlurmctldPort=16817
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={MUNGE}/socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
MpiDefault=none
{nodes}
PartitionName=main Nodes={",".join(NODES)} Default=YES MaxTime=2:00:00 State=UP OverSubscribe=NO
""")
    return conf


@contextmanager
def _profile(conf: Path, folder: Path, uv: Path) -> Iterator[None]:
    """SkyPilot uses login shells, and fetches uv with curl from the net: here it is taken from where it is."""
    tools = folder / "tools"
    tools.mkdir()
    # What says here how package indexes are reached must say so on the nodes too.
    reach = [f"export {name}={shlex.quote(value)}\n" for name, value in os.environ.items() if _REACH.match(name)]
    (folder / "reach.sh").write_text("".join([*reach, "export UV_SYSTEM_CERTS=1\n"]))
    (tools / "uv").write_text(
        f"#!/bin/bash\n. {folder}/reach.sh\n"
        f'for word; do words+=("${{word/#3.10/3.11}}"); done\nexec {uv} "${{words[@]}}"\n'
    )
    (tools / "curl").write_text(
        '#!/bin/bash\ncase "$*" in *astral.sh/uv*) '
        f'echo \'mkdir -p "$UV_INSTALL_DIR" && cp {tools}/uv "$UV_INSTALL_DIR/uv"\';; '
        '*) exec /usr/bin/curl "$@";; esac\n'
    )
    for tool in tools.iterdir():
        tool.chmod(0o755)
    for path in (folder, *folder.parents):
        if path != Path("/"):
            path.chmod(path.stat().st_mode | 0o055)
    PROFILE.write_text(
        f'if [ "$(id -un)" = {USER} ]; then . {folder}/reach.sh; '
        f"export SLURM_CONF={conf} PATH={tools}:$PATH:/usr/sbin; fi\n"
    )
    try:
        yield
    finally:
        PROFILE.unlink()


def _ssh(folder: Path, home: Path) -> Path:
    for name in ("host_key", "user_key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    keys = home / ".ssh"
    keys.mkdir(mode=0o700)
    (keys / "authorized_keys").write_text((folder / "user_key.pub").read_text())
    for path in (keys, keys / "authorized_keys"):
        shutil.chown(path, USER, USER)
    Path("/run/sshd").mkdir(exist_ok=True)
    config = folder / "sshd_config"
    config.write_text(f"""\
ListenAddress 127.0.0.1:{SSH_PORT}
HostKey {folder}/host_key
PidFile {folder}/sshd.pid
PasswordAuthentication no
AllowUsers {USER}
UsePAM no
MaxSessions 100
MaxStartups 100
Subsystem sftp internal-sftp
SetEnv SLURM_CONF={folder}/slurm.conf PATH={folder}/tools:/usr/local/bin:/usr/bin:/bin:/usr/sbin
""")
    return config


def _sky_home(folder: Path) -> Path:
    home = folder / "home"
    (home / ".slurm").mkdir(parents=True)
    (home / ".slurm" / "config").write_text(
        f"Host loop\n  HostName 127.0.0.1\n  Port {SSH_PORT}\n  User {USER}\n  IdentityFile {folder}/user_key\n"
        "  IdentitiesOnly yes\n"
    )
    return home


def _idle(environment: dict[str, str]) -> int:
    shown = subprocess.run(["sinfo", "-h", "-N", "-o", "%t"], env=environment, capture_output=True, text=True)
    return shown.stdout.split().count("idle")


def _wait(ready: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > until:
            raise TimeoutError(f"no {what} after {seconds:g} s")
        time.sleep(0.2)
