"""Speaks as `workbooks/libreoffice.py` does, without LibreOffice: each cell holds its process, and the book's size."""

from __future__ import annotations

import json
import os
import sys
import time

print(json.dumps({"ready": True}), flush=True)
while line := sys.stdin.buffer.readline():
    asked = json.loads(line)
    book = sys.stdin.buffer.read(asked["size"])
    if book == b"slow":
        time.sleep(1)
    if book == b"end":
        os._exit(3)
    if book == b"fail":
        print(json.dumps({"failed": "it cannot be opened"}), flush=True)
        continue
    cells = {sheet: {name: [os.getpid(), len(book)] for name in names} for sheet, names in asked["cells"].items()}
    print(json.dumps({"cells": cells, "cases": [cells] * len(asked["cases"])}), flush=True)
