"""Recognises an environment that was packed twice, also by another client.

Two pickles of one environment differ in the random ids that cloudpickle gives classes, and in the order of the members
of sets, which changes with every process. Everything else is compared. Nothing is unpickled: the opcodes are read.
"""

from __future__ import annotations

import hashlib
import pickletools
import re
from typing import Any

from benchmax.bundle.pickle_names import GETS, PUTS, read_opcodes

_ID = re.compile(r"[0-9a-f]{32}")
_SETS = frozenset({"FROZENSET", "ADDITEMS"})
_FRAMING = frozenset({"FRAME", "PROTO"})


def fingerprint(pickled: bytes) -> str:
    """Equal for pickles of the same content; ValidationError if it is not a pickle."""
    reader = _Reader()
    read_opcodes(pickled, reader.step)
    return hashlib.sha256("\n".join(reader.tokens).encode("utf-8", "backslashreplace")).hexdigest()


class _Reader:
    """Writes each opcode as a token: references as what they refer to, the members of sets sorted."""

    def __init__(self) -> None:
        self.tokens: list[str] = []
        self._marks: list[int] = []
        self._memo: dict[int, str] = {}

    def step(self, opcode: pickletools.OpcodeInfo, argument: Any) -> None:
        name = opcode.name
        if name in PUTS:
            self._memo[len(self._memo) if argument is None else int(argument)] = self.tokens[-1]
        elif name in GETS:
            self.tokens.append(self._memo[int(argument)])
        elif name not in _FRAMING:
            self._write(opcode, argument)

    def _write(self, opcode: pickletools.OpcodeInfo, argument: Any) -> None:
        if opcode.name == "MARK":
            self._marks.append(len(self.tokens))
        elif pickletools.markobject in opcode.stack_before:
            start = self._marks.pop()
            if opcode.name in _SETS:
                self.tokens[start:] = sorted(self.tokens[start:])
        random = isinstance(argument, str) and _ID.fullmatch(argument)
        self.tokens.append(f"{opcode.name} {'' if random else repr(argument)}")
