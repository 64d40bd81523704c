"""Replaces a file in one step: a reader sees the old content or the new, never a part of it.

The new content is written beside the file and renamed over it. When something fails before that, the old file stays as
it was and nothing is left beside it.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

TEMPORARY = ".tmp-"
"""The prefix of files that are being written."""


@contextmanager
def replacing(path: Path, *, private: bool = False, durable: bool = True, keep: bool = False) -> Iterator[BinaryIO]:
    """A file that replaces `path` when the block ends without an error.

    `private` lets only its owner read it; `durable` makes it survive a power cut; with `keep`, an existing file stays.
    """
    temporary = path.with_name(f"{TEMPORARY}{path.name}-{os.getpid()}-{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600 if private else 0o666)
    try:
        with open(descriptor, "w+b") as file:
            yield file
            file.flush()
            if durable:
                os.fsync(file.fileno())
        if keep:
            with suppress(FileExistsError):
                os.link(temporary, path)
        else:
            temporary.replace(path)
    except OSError as error:
        if error.filename is None:  # a full disk is reported when writing, not when opening
            error.filename = str(path)
        raise
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str, *, private: bool = False, durable: bool = True, keep: bool = False) -> None:
    """Replace a file by a text. Lone surrogates are kept as they are."""
    with replacing(path, private=private, durable=durable, keep=keep) as file:
        file.write(text.encode("utf-8", "surrogatepass"))


def write_json(path: Path, value: Any, *, private: bool = False, durable: bool = True) -> None:
    """Replace a file by a JSON value, indented for people. Lone surrogates become question marks."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    write_text(path, text.encode("utf-8", "replace").decode(), private=private, durable=durable)
