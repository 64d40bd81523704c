"""Which names a pickle would import, found by reading its opcodes. Nothing is imported or called.

A pickle is a program for a small stack machine. Here the machine runs with placeholders in place of values:
only strings, tuples and names of globals are tracked, because they determine what the real machine would import.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from benchmax.bundle.errors import ValidationError


class Global(NamedTuple):
    """A name that the pickle imports."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


@dataclass(slots=True)
class Names:
    """What a pickle refers to by name."""

    globals: set[Global] = field(default_factory=set)
    modules: set[str] = field(default_factory=set)
    """Modules the pickle asks for as a whole, through cloudpickle."""
    in_code: set[str] = field(default_factory=set)
    """Names in packed code: of attributes, and of modules it imports when it runs."""
    hooks: set[str] = field(default_factory=set)
    """Those of HOOKS that are mentioned anywhere: a pickle that does not mention one does not override it."""
    computed: int = 0
    """Imports whose names are computed; an honest pickle has none."""

    def all_modules(self) -> set[str]:
        return self.modules | {each.module for each in self.globals}


HOOKS = frozenset({"dataset_preprocess"})
PUTS = frozenset({"PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"})
GETS = frozenset({"GET", "BINGET", "LONG_BINGET"})
"""Opcodes that put the top of the stack into the memo, and get a value from it."""
_MARK = object()
_OTHER = object()
_SUBIMPORT = Global("cloudpickle.cloudpickle", "subimport")
_CODE_PARTS, _CODE_NAMES = 16, 8
"""The least number of arguments of a code object, and which of them is the tuple of its names."""


def names_in(pickled: bytes) -> Names:
    """Every global and module the pickle would import; ValidationError if it is not a pickle."""
    machine = _Machine()
    read_opcodes(pickled, machine.step)
    return machine.names


def read_opcodes(pickled: bytes, step: Callable[[pickletools.OpcodeInfo, Any], None]) -> None:
    """Call `step` with each opcode and its argument; ValidationError if it is not a pickle."""
    try:
        for opcode, argument, _ in pickletools.genops(pickled):
            step(opcode, argument)
    except Exception as error:
        raise ValidationError(f"The bundle is not a readable pickle ({error}). Pack the environment again.") from None


class _Machine:
    """The stack machine, which computes nothing."""

    def __init__(self) -> None:
        self.names = Names()
        self._stack: list[Any] = []
        self._marks: list[int] = []
        """Where the marks are on the stack."""
        self._memo: dict[int, Any] = {}

    def step(self, opcode: pickletools.OpcodeInfo, argument: Any) -> None:
        name = opcode.name
        if name in PUTS:
            self._memo[len(self._memo) if argument is None else int(argument)] = self._stack[-1]
        elif name in GETS:
            self._stack.append(self._memo.get(int(argument), _OTHER))
        elif name in ("GLOBAL", "INST"):
            if name == "INST":
                self._take(opcode)
            module, _, attribute = str(argument).partition(" ")
            self._stack.append(self._import(module, attribute))
        elif name == "DUP":
            self._stack.append(self._stack[-1])
        elif (isinstance(argument, str) and "UNICODE" in name) or name in ("STRING", "BINSTRING", "SHORT_BINSTRING"):
            self._stack.append(argument)
            if argument in HOOKS:
                self.names.hooks.add(argument)
        else:
            self._compute(opcode, self._take(opcode))

    def _take(self, opcode: pickletools.OpcodeInfo) -> list[Any]:
        """Pop the arguments of the opcode."""
        before = opcode.stack_before
        if pickletools.markobject in before or opcode.name == "POP_MARK":
            at = self._marks.pop()
            fixed = before.index(pickletools.markobject) if pickletools.markobject in before else 0
            taken = self._cut(at)[1:]
            return self._cut(at - fixed) + taken
        return self._cut(len(self._stack) - len(before))

    def _cut(self, start: int) -> list[Any]:
        """Remove everything from `start` on from the stack, marks included."""
        if start < 0:
            raise ValueError("it pops more than it has pushed")
        taken = self._stack[start:]
        del self._stack[start:]
        while self._marks and self._marks[-1] >= start:
            self._marks.pop()
        return taken

    def _compute(self, opcode: pickletools.OpcodeInfo, taken: list[Any]) -> None:
        name = opcode.name
        if name == "MARK":
            self._marks.append(len(self._stack))
            self._stack.append(_MARK)
        elif name == "STACK_GLOBAL":
            self._stack.append(self._import(*taken))
        elif name in ("TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "EMPTY_TUPLE"):
            self._stack.append(tuple(taken))
        else:
            if name == "REDUCE":
                self._record_call(*taken)
            self._stack.extend(_OTHER for _ in opcode.stack_after)

    def _import(self, module: Any, name: Any) -> Any:
        if not (isinstance(module, str) and isinstance(name, str)):
            self.names.computed += 1
            return _OTHER
        found = Global(module, name)
        self.names.globals.add(found)
        return found

    def _record_call(self, function: Any, arguments: Any) -> None:
        if function == _SUBIMPORT and isinstance(arguments, tuple) and arguments and isinstance(arguments[0], str):
            self.names.modules.add(arguments[0])
        if function is _OTHER and isinstance(arguments, tuple) and len(arguments) >= _CODE_PARTS:
            names = arguments[_CODE_NAMES]
            if isinstance(names, tuple):
                self.names.in_code.update(name for name in names if isinstance(name, str))
