"""A session's child that only sits there: ready at once, gone when asked."""

import os
import signal
import sys
import time
from pathlib import Path

from benchmax.platform.runner.children.child_files import write_note
from benchmax.platform.runner.processes import parent_watch as lifeline

folder, fd, policy = Path(sys.argv[1]), int(sys.argv[3]), sys.argv[5]
lifeline.wait_for_word(fd)
lifeline.hold(fd, folder, policy)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
write_note(folder / "activity.json", {"busy": 0, "since": time.time()})
write_note(folder / "ready.json", {"token": "t", "pid": os.getpid()})
while True:
    time.sleep(0.05)
