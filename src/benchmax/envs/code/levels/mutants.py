"""A solution with one thing wrong in it: which calls expose the mistake?

All mutants of a solution are one compiled function that asks at each place which of them it is:
`x > 3` becomes `(x >= 3) if _mutant == 1 else (x > 4) if _mutant == 2 else … else (x > 3)`.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any, TypeVar

FAILED = object()
"""Stands for the result of a call that raised an error, or did not end."""
_TURNS = 300
"""Turns of `while` in one call."""
_COMPARED: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq, ast.LtE, ast.GtE),
    ast.NotEq: (ast.Eq,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
}
_COUNTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.FloorDiv: ast.Mod,
    ast.Mod: ast.FloorDiv,
}
_CALLED = {"min": "max", "max": "min", "any": "all", "all": "any"}
Node = TypeVar("Node", bound=ast.AST)


class Mutants:
    """A function and its mutants, which are numbered from 1."""

    def __init__(self, source: str, name: str) -> None:
        writer = _Writer()
        tree = ast.fix_missing_locations(writer.visit(ast.parse(source)))
        self._names: dict[str, Any] = {}
        exec(compile(tree, "<mutants>", "exec"), self._names)  # noqa: S102 - our own solutions
        self._function = self._names[name]
        self.count = writer.count
        self.constants = list(dict.fromkeys(writer.constants))
        """The numbers and texts that are written in it."""

    def returned(self, mutant: int, args: Sequence[Any]) -> Any:
        """What a mutant returns, or the function itself if it is 0."""
        self._names["_mutant"], self._names["_turns"] = mutant, iter(range(_TURNS))
        try:
            return self._function(*args)
        except Exception:
            return FAILED

    def exposes(self, mutant: int, args: Sequence[Any], right: Any) -> bool:
        """Whether the call shows that it is a mutant."""
        value = self.returned(mutant, args)
        return type(value) is not type(right) or bool(value != right)


class _Writer(ast.NodeTransformer):
    """Writes the mutants into a tree. A mutant holds the rest as it was, for only one thing is ever wrong."""

    def __init__(self) -> None:
        self.count = 0
        self.constants: list[int | str] = []

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        mutants: list[ast.expr] = []
        for place, op in enumerate(node.ops):
            for other in _COMPARED[type(op)]:
                ops = [*node.ops[:place], other(), *node.ops[place + 1 :]]
                mutants.append(ast.Compare(node.left, ops, node.comparators))
        return self._either(node, mutants)

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        mutants: list[ast.expr] = [node.left] if isinstance(node.op, ast.Add | ast.Sub) else []
        if other := _COUNTED.get(type(node.op)):
            mutants.append(ast.BinOp(node.left, other(), node.right))
        return self._either(node, mutants)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        return self._either(node, [ast.BoolOp(other, node.values), *node.values])

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        if isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
            value = node.operand.value
            self.constants += [-value] if isinstance(value, int) else []
        return self._either(node, [node.operand])

    def visit_Call(self, node: ast.Call) -> ast.expr:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        others = [ast.Name(_CALLED[name], ast.Load())] if name in _CALLED else []
        return self._either(node, [ast.Call(other, node.args, node.keywords) for other in others])

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        value = node.value
        if isinstance(value, bool):
            return self._either(node, [ast.Constant(not value)])
        if isinstance(value, int):
            self.constants.append(value)
            return self._either(node, [ast.Constant(value + 1), ast.Constant(value - 1)])
        if isinstance(value, str):
            self.constants.append(value)
            return self._either(node, [ast.Constant(value + "?")])
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.stmt:
        other = _COUNTED.get(type(node.op))
        if other is None:
            return self._inside(node)
        self.count += 1
        mutant = ast.AugAssign(node.target, other(), node.value)
        return ast.If(_is(self.count), [mutant], [self._inside(node)])

    def visit_While(self, node: ast.While) -> ast.stmt:
        turn = ast.Expr(ast.Call(ast.Name("next", ast.Load()), [ast.Name("_turns", ast.Load())], []))
        changed = self._inside(node)
        return ast.While(changed.test, [turn, *changed.body], changed.orelse)

    def _either(self, node: ast.expr, mutants: Sequence[ast.expr]) -> ast.expr:
        first, self.count = self.count + 1, self.count + len(mutants)
        written = self._inside(node)
        for number, mutant in enumerate(mutants, first):
            written = ast.IfExp(_is(number), mutant, written)
        return written

    def _inside(self, node: Node) -> Node:
        """The node anew, with mutants in its parts."""
        parts = {name: self._part(value) for name, value in ast.iter_fields(node)}
        return type(node)(**parts)

    def _part(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._part(each) for each in value]
        return self.visit(value) if isinstance(value, ast.AST) else value

    def generic_visit(self, node: ast.AST) -> ast.AST:
        return self._inside(node)


def _is(number: int) -> ast.expr:
    return ast.Compare(ast.Name("_mutant", ast.Load()), [ast.Eq()], [ast.Constant(number)])
