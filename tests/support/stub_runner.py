"""A runner in a process of its own whose children are stubs: `python stub_runner.py DATA POLICY [DATABASE_URL]`."""

import logging
import signal
import sys

from benchmax.platform.runner import supervisor as rules
from benchmax.platform.runner.supervisor import Supervisor
from benchmax.platform.store.database import open_database
from benchmax.platform.store.datadir import DataDir
from runner_world import start_stub

logging.basicConfig(level=logging.INFO)
rules.HEARTBEAT_SECONDS = 0.3
data = DataDir(sys.argv[1]).create()
with data.lock("runner"):
    database = open_database(data, *sys.argv[3:])
    supervisor = Supervisor(database, data, slots=["cpu:0", "cpu:1"], policy=sys.argv[2], start=start_stub)
    signal.signal(signal.SIGTERM, lambda *_: supervisor.stop())
    supervisor.run()
