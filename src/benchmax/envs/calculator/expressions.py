"""The value of an arithmetic expression, as text: the calculator of `calculator` and of `math`.

Rational numbers stay exact: `0.1 + 0.2` is 0.3, `1 / 3` is 1/3. The expression is read as Python's syntax tree and
walked, never evaluated, and every number on the way is bounded, so an expression costs microseconds whatever it says.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any, TypeAlias

from benchmax.errors import ToolError

Number: TypeAlias = "Fraction | float"

EXPRESSION_CHARS = 100
_DIGITS = 300
_LARGEST = 10**_DIGITS
_LARGEST_COUNT = 1_000
"""For factorials and choices."""
_DECIMALS = 12
_LARGEST_DENOMINATOR = 10**6
"""The largest denominator that a result is written with."""
_AS_PYTHON_SIGNS = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-", "–": "-"})
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_CONSTANTS: dict[str, float] = {"pi": math.pi, "e": math.e}


def compute(expression: str) -> str:
    """The value of an expression; anything that has none is an error for the model."""
    if len(expression) > EXPRESSION_CHARS:
        raise ToolError(f"The expression is longer than {EXPRESSION_CHARS} characters. Shorten it.")
    text = expression.strip().translate(_AS_PYTHON_SIGNS).replace("^", "**")
    text = text if any(map(str.isalpha, text)) else _THOUSANDS.sub("", text)
    try:
        return _shown(_value(ast.parse(text, mode="eval").body))
    except (SyntaxError, ValueError, TypeError, RecursionError, ZeroDivisionError, OverflowError, MemoryError) as error:
        raise ToolError(f"{expression!r} cannot be computed: {error}") from None


def _value(node: ast.expr) -> Number:
    match node:
        case ast.Constant(value=value) if type(value) in (int, float):
            return _bounded(Fraction(str(value)))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _value(operand)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return _bounded(_power(_value(left), _value(right)))
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _OPERATORS:
            return _bounded(_OPERATORS[type(sign)](_value(left), _value(right)))
        case ast.Name(id=name) if name in _CONSTANTS:
            return _CONSTANTS[name]
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _FUNCTIONS:
            return _bounded(_FUNCTIONS[name](*map(_value, arguments)))
    known = ", ".join(_FUNCTIONS)
    raise ValueError(f"only numbers, + - * / // % **, brackets, pi, e and these are known: {known}")


def _bounded(value: Number) -> Number:
    """The value as an exact or a finite number; one that is too long raises."""
    if isinstance(value, float):
        if not math.isfinite(value):
            raise OverflowError("the result is not a finite number")
        return value
    exact = Fraction(value)
    if abs(exact.numerator) >= _LARGEST or exact.denominator >= _LARGEST:
        raise OverflowError(f"a number has more than {_DIGITS} digits")
    return exact


def _power(base: Number, exponent: Number) -> Number:
    if isinstance(base, Fraction) and isinstance(exponent, Fraction) and exponent.denominator == 1:
        longest = max(abs(base.numerator), base.denominator).bit_length()
        if abs(exponent) * longest > _LARGEST.bit_length() + longest:
            raise OverflowError(f"a number has more than {_DIGITS} digits")
        return base**exponent.numerator
    if base < 0:
        raise ValueError("a negative number has no real power of that kind")
    return math.pow(base, exponent)


def _square_root(value: Number) -> Number:
    if value < 0:
        raise ValueError("a negative number has no real square root")
    if isinstance(value, Fraction):
        top, bottom = math.isqrt(value.numerator), math.isqrt(value.denominator)
        if top * top == value.numerator and bottom * bottom == value.denominator:
            return Fraction(top, bottom)
    return math.sqrt(value)


def _of_counts(function: Callable[..., int], most: float = _LARGEST_COUNT) -> Callable[..., Number]:
    """A function of whole numbers, bounded where its cost grows with them."""

    def counted(*values: Number) -> Number:
        if any(value != int(value) for value in values):
            raise ValueError("whole numbers are needed")
        if not all(-most <= value <= most for value in values):
            raise OverflowError(f"numbers up to {most} are allowed")
        return Fraction(function(*map(int, values)))

    return counted


def _rounded(value: Number, digits: Number = Fraction(0)) -> Number:
    if not -_DECIMALS <= digits <= _DECIMALS:
        raise OverflowError(f"up to {_DECIMALS} digits are kept")
    return Fraction(round(Fraction(value), int(digits)))


_FUNCTIONS: dict[str, Callable[..., Number]] = {
    "sqrt": _square_root,
    "abs": abs,
    "min": min,
    "max": max,
    "round": _rounded,
    "floor": lambda value: Fraction(math.floor(value)),
    "ceil": lambda value: Fraction(math.ceil(value)),
    "factorial": _of_counts(math.factorial),
    "comb": _of_counts(math.comb),
    "perm": _of_counts(math.perm),
    "gcd": _of_counts(math.gcd, math.inf),
    "lcm": _of_counts(math.lcm, math.inf),
    "exp": math.exp,
    "ln": math.log,
    "log": math.log10,
    "sin": math.sin,
    "cos": math.cos,
    "tan": math.tan,
}


def _shown(value: Number) -> str:
    """As people write it: 12, 2.5, 1/3, 1.41421356237."""
    if isinstance(value, float):
        return format(value, f".{_DECIMALS}g")
    if value.denominator == 1:
        return str(value.numerator)
    scaled = value * 10**_DECIMALS
    if scaled.denominator == 1:
        whole, decimals = divmod(abs(scaled.numerator), 10**_DECIMALS)
        return f"{'-' * (value < 0)}{whole}.{decimals:0{_DECIMALS}d}".rstrip("0")
    return str(value) if value.denominator <= _LARGEST_DENOMINATOR else format(float(value), f".{_DECIMALS}g")
