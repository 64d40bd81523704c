"""A cache of verdicts: the most recent in memory, all of them in a directory when one is given."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any

from benchmax.files.atomic import write_text

logger = logging.getLogger(__name__)


def cache_key(*parts: Any) -> str:
    """The SHA-256 of the parts, the same in every process."""
    text = json.dumps(parts, ensure_ascii=True, sort_keys=True, default=repr)
    return hashlib.sha256(text.encode()).hexdigest()


class JudgeCache:
    """A least-recently-used store of reply texts. Safe to share between threads and, by directory, processes."""

    def __init__(self, size: int = 10_000, directory: str | os.PathLike[str] | None = None) -> None:
        self.size = size
        self.directory = Path(directory) if directory is not None else None
        self._texts: OrderedDict[str, str] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: str) -> str | None:
        with self._lock:
            text = self._texts.get(key)
            if text is not None:
                self._texts.move_to_end(key)
                return text
        text = self._read(key)
        if text is not None:
            self._remember(key, text)
        return text

    def put(self, key: str, text: str) -> None:
        """Remember a verdict; a directory that cannot be written, such as one on a full disk, is only logged."""
        self._remember(key, text)
        if self.directory is None:
            return
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            write_text(self.directory / f"{key}.txt", text.encode("utf-8", "replace").decode(), durable=False)
        except OSError as error:
            message = "The judge cache in %s could not be written: %s. Free space or move it."
            logger.warning(message, self.directory, error)

    def _remember(self, key: str, text: str) -> None:
        with self._lock:
            self._texts[key] = text
            self._texts.move_to_end(key)
            while len(self._texts) > self.size:
                self._texts.popitem(last=False)

    def _read(self, key: str) -> str | None:
        if self.directory is None:
            return None
        try:
            return (self.directory / f"{key}.txt").read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):  # never written, or damaged: ask again
            return None
