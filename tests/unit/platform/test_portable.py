"""The runner works where the kernel has none of Linux's own calls."""

import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[2] / "support"

WITHOUT = """
import ctypes, os, resource, select, socket, sys
for module, names in {
    os: ("O_PATH", "pidfd_open", "waitid", "memfd_create", "sched_getaffinity"),
    select: ("epoll", "POLLRDHUP"),
    resource: ("prlimit",),
    socket: ("SOCK_CLOEXEC", "SOCK_NONBLOCK", "AF_NETLINK"),
}.items():
    for name in names:
        if hasattr(module, name):
            delattr(module, name)

class NoLibc:
    def __init__(self, *_, **__):
        raise OSError("no such library")

ctypes.CDLL = NoLibc
"""

RUNS = """
from pathlib import Path
from benchmax.platform.runner.supervisor import Supervisor
from benchmax.platform.store.runs import runs
from runner_world import drive, ended, get, is_running, launch, open_world, start_stub, starts
sys.platform = "darwin"
database, data = open_world(Path(sys.argv[1]))
boss = Supervisor(database, data, slots=["cpu:0"], start=start_stub)
run_id = launch(database, steps=3)
drive(boss, ended(database, run_id))
print(get(database, run_id).status)
other = launch(database, steps=1000, pause=0.05, family=True)
drive(boss, lambda: (data.run(other) / "family").exists())
with database.write() as session:
    runs.request_cancel(session, other)
drive(boss, ended(database, other))
left = [starts(data, other)[0]["pid"], int((data.run(other) / "family").read_text())]
print(get(database, other).status, any(map(is_running, left)))
with data.lock("runner"):
    print(data.holder("runner") == os.getpid())
database.close()
"""


def test_runs_end_and_are_cancelled_without_linux(tmp_path):
    command = [sys.executable, "-c", WITHOUT + RUNS, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=TESTS)
    assert done.stdout.split() == ["complete", "cancelled", "False", "True"], done.stderr


def test_the_live_session_of_a_folder_has_a_socket_without_linux(tmp_path):
    code = """
import asyncio
from pathlib import Path
from benchmax.files.redaction import Redactor
from benchmax.platform.runner.live.session_child import Listener
from benchmax.platform.store.queue.live_sessions import SessionFolder

class Handler:
    def about(self):
        return {}

    async def answer(self, request, send):
        send({"heard": request["say"]})

async def main(path):
    folder = SessionFolder(path)
    serving = asyncio.create_task(Listener(folder, Handler(), Redactor(())).serve(60.0))
    while not (path / "ready.json").exists():
        await asyncio.sleep(0.01)
    with folder.socket_path() as name:
        reader, writer = await asyncio.open_unix_connection(name)
    writer.write(b'{"say": "hello", "token": "%s"}\\n' % folder.note("ready")["token"].encode())
    print((await reader.readline()).decode())
    writer.close()
    serving.cancel()

asyncio.run(main(Path(sys.argv[1])))
"""
    command = [sys.executable, "-c", WITHOUT + code, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ['{"heard":', '"hello"}'], done.stderr
