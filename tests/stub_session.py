"""A session's child that only sits there: ready at once, gone when asked."""

import json
import os
import signal
import sys
import time
from pathlib import Path

from benchmax.platform.runner import lifeline

folder, fd, policy = Path(sys.argv[1]), int(sys.argv[3]), sys.argv[5]
lifeline.wait_for_word(fd)
lifeline.hold(fd, folder, policy)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
(folder / "activity.json").write_text(json.dumps({"busy": 0, "since": time.time()}))
(folder / "ready.json").write_text(json.dumps({"token": "t", "pid": os.getpid()}))
while True:
    time.sleep(0.05)
