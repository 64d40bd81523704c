"""Hidden tests tell a solution from the same one with an operator, a boundary or a constant wrong."""

from __future__ import annotations

import ast
import copy
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from benchmax.envs.code.levels import LEVELS
from benchmax.envs.code.reward import read_cases, same

ROWS = 60
POOL = 400
WRONG = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Add: ast.Sub, ast.And: ast.Or}


def changes(node: ast.AST) -> Iterator[tuple[ast.AST, str, Any, Any]]:
    """Fields of a tree, what is in them, and what would be wrong there."""
    for each in ast.walk(node):
        if isinstance(each, ast.Compare):
            for place, op in enumerate(each.ops):
                if type(op) in WRONG:
                    yield each, "ops", each.ops, [*each.ops[:place], WRONG[type(op)](), *each.ops[place + 1 :]]
        elif isinstance(each, ast.BinOp | ast.BoolOp) and type(each.op) in WRONG:
            yield each, "op", each.op, WRONG[type(each.op)]()
            if isinstance(each, ast.BinOp) and isinstance(each.right, ast.Constant) and each.right.value == 1:
                yield each.right, "value", 1, 0
        elif isinstance(each, ast.Constant) and type(each.value) is int:
            yield each, "value", each.value, each.value + 1
            yield each, "value", each.value, each.value - 1


def mutants(source: str) -> Iterator[str]:
    tree = ast.parse(source)
    for node, field, was, wrong in changes(tree):
        setattr(node, field, wrong)
        yield ast.unparse(tree)
        setattr(node, field, was)


def function(source: str, name: str) -> Callable[..., Any]:
    """The function, whose loops end."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.While):
            node.body.insert(0, ast.parse("next(turns)").body[0])
    names: dict[str, Any] = {}
    exec(compile(ast.fix_missing_locations(tree), "<mutant>", "exec"), names)

    def call(*args: Any) -> Any:
        names["turns"] = iter(range(500))
        try:
            return names[name](*copy.deepcopy(args))
        except Exception as error:
            return type(error)

    return call


@pytest.mark.parametrize("level", LEVELS)
def test_one_thing_wrong_in_a_solution_is_noticed(level):
    draw, made, paid, wrong = random.Random(11), 0, [], 0
    makers = list(LEVELS[level])
    while made < ROWS:
        plan = makers[made % len(makers)](draw)
        row = plan.row(draw)
        if row is None:
            continue
        made += 1
        right, tests = function(row["solution"], row["entry_point"]), read_cases(row["tests"])
        assert all(same(right(*each.args), each.expected) for each in tests)
        pool = [tuple(plan.args(draw)) for _ in range(POOL)]
        for source in mutants(row["solution"]):
            mutant = function(source, row["entry_point"])
            earns = all(same(mutant(*each.args), each.expected) for each in tests)
            if not earns:
                wrong += 1
            elif not all(same(mutant(*args), right(*args)) for args in pool):
                wrong += 1
                paid.append(source)
    assert wrong > ROWS
    assert len(paid) <= 0.02 * wrong, f"{len(paid)} of {wrong}: " + json.dumps(paid[:10], indent=1)
