"""A session's child that only sits there: ready at once, gone when asked."""

import os
import signal
import sys
import time
from pathlib import Path

from benchmax.platform.runner.children.child_files import write_child_file
from benchmax.platform.runner.processes import parent_watch

folder, fd, policy = Path(sys.argv[1]), int(sys.argv[3]), sys.argv[5]
parent_watch.ADOPT_SECONDS = 60.0  # a loaded machine is slow to start another runner
parent_watch.wait_for_message(fd)
parent_watch.watch_parent(fd, folder, policy)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
write_child_file(folder / "activity.json", {"busy": 0, "since": time.time()})
write_child_file(folder / "ready.json", {"token": "t", "pid": os.getpid()})
while True:
    time.sleep(0.05)
