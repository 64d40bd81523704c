"""A keeper with the real server and a runner of stubs: `python stub_keeper.py DATA PORT`."""

import sys
from pathlib import Path

from benchmax.platform.daemon import daemon as keeper
from benchmax.platform.store.datadir import DataDir


class StubOptions(keeper.Options):
    def runner(self):
        return [sys.executable, str(Path(__file__).with_name("stub_runner.py")), str(self.data.root), "adopt"]


keeper.STOPPED_SECONDS, keeper.LOOK_SECONDS = 1.0, 0.3
keeper.Keeper(StubOptions(DataDir(sys.argv[1]), int(sys.argv[2]))).run()
