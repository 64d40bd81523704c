"""A daemon with the real server and a runner of stubs: `python stub_daemon.py DATA PORT`."""

import sys
from pathlib import Path

from benchmax.platform.daemon import daemon, liveness
from benchmax.platform.daemon.options import Options
from benchmax.platform.store.datadir import DataDir


class StubOptions(Options):
    def runner(self):
        return [sys.executable, str(Path(__file__).with_name("stub_runner.py")), str(self.data.root), "adopt"]


daemon.STOPPED_SECONDS, liveness.LOOK_SECONDS = 1.0, 0.3
daemon.Daemon(StubOptions(DataDir(sys.argv[1]), int(sys.argv[2]))).run()
