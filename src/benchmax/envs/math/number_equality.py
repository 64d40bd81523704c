r"""Plain numbers in every notation people answer in, compared exactly.

`1,234`, `-3.50`, `5/2`, `2 1/2`, `\frac{5}{2}`, `50\%`, `3.2 \times 10^{4}`, `$18`, `120 cm`, `5 apples`, `2 million`.
Sums, products, powers and roots are not plain numbers: the answer to 47 * 83 has to be worked out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

TOLERANCE = Fraction(2, 10**6)
"""Relative; for numbers written as decimals."""
NUMBER_CHARS = 100

_DECIMAL = r"(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d*)?|\.\d+"
_PLAIN = re.compile(
    rf"(?:(?P<sign>[-+]?)\s*(?P<currency>[$€£]?)|(?P<before>[$€£])\s*(?P<after>[-+]))\s*(?P<body>{_DECIMAL})(?P<rest>.*)",
    re.DOTALL,
)
_FRACTION = re.compile(
    r"(?P<sign>[-+]?)\s*(?P<whole>\d{1,15}(?=\s|\\))?\s*"
    r"(?:\\[dt]?frac\s*(?:\{\s*(?P<a>-?\d{1,30})\s*\}\s*\{\s*(?P<b>\d{1,30})\s*\}|(?P<c>\d)\s*(?P<d>\d))"
    r"|(?P<e>\d{1,30})\s*/\s*(?P<f>\d{1,30}))(?P<rest>.*)",
    re.DOTALL,
)
_POWER = re.compile(
    r"\s*(?:[eE]|(?:\\times|\\cdot|×|\*|x)\s*10\s*(?:\^|\*\*)\s*)(?:\{\s*([-+]?\d{1,3})\s*\}|([-+]?\d{1,3}))"
)
_NAME = re.compile(r"(?:\\(?:left|right|displaystyle)\b|\\[,;:! ]|~)")
_TEXT = re.compile(r"\\(?:text|mathrm|textrm|mbox)\s*\{([^{}]*)\}")
_UNIT = re.compile(r"(?P<space>\s*)(?P<unit>[A-Za-z°'’.²³]+(?:[ -][A-Za-z.²³]+){0,3}|%|\\%)")
_VARIABLE = re.compile(r"[A-Za-z]\s*=\s*(?=[^=])")

_SCALES = {"hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9, "dozen": 12}
_NO_UNITS = frozenset(
    {"and", "or", "to", "pi", "e", "i", "sqrt", "sin", "cos", "tan", "log", "ln", "exp", "x", "y", "z"}
)
_MEASURES: dict[str, tuple[str, Fraction]] = {
    spelling: (dimension, Fraction(size))
    for dimension, size, spellings in (
        ("length", "1", "m meter metre"), ("length", "1/100", "cm centimeter centimetre"),
        ("length", "1/1000", "mm millimeter millimetre"), ("length", "1000", "km kilometer kilometre"),
        ("imperial", "1", "in inch inche"), ("imperial", "12", "ft foot feet"), ("imperial", "36", "yd yard"),
        ("imperial", "63360", "mi mile"),
        ("time", "1", "s sec second"), ("time", "60", "min minute"), ("time", "3600", "h hr hour"),
        ("time", "86400", "d day"), ("time", "604800", "week"),
        ("mass", "1", "g gram"), ("mass", "1000", "kg kilogram"), ("mass", "1/1000", "mg milligram"),
        ("volume", "1", "l liter litre"), ("volume", "1/1000", "ml milliliter millilitre"),
        ("money", "1", "$ dollar usd"), ("money", "1/100", "cent"), ("euro", "1", "€ euro eur"),
        ("pound", "1", "£ gbp"), ("angle", "1", "° degree deg"),
    )
    for spelling in spellings.split()
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class PlainNumber:
    """A number as it was written."""

    value: Fraction
    kind: str
    """`whole`, `decimal` or `fraction`."""
    unit: str = ""
    percent: bool = False


def read_number(text: str) -> PlainNumber | None:
    """The number that a text is, with its unit; None when it is anything else, or a number and more."""
    if len(text) > NUMBER_CHARS:
        return None
    cleaned = _VARIABLE.sub("", _cleaned(text), count=1)
    for reader in (_read_fraction, _read_decimal):
        if (found := reader(cleaned)) is not None:
            return found
    return None


def same_number(answer: PlainNumber, truth: PlainNumber) -> bool:
    """Whether two numbers are equal; a unit may be left out, but not be another one."""
    if truth.kind != "fraction" and truth.value.denominator == 1 and answer.kind == "fraction":
        return False  # 84/7 repeats a question, and is no answer to it
    wanted, said = _measured(truth), _measured(answer)
    if wanted is not None and said is not None:
        return wanted[0] == said[0] and _close(said[1], wanted[1], answer, truth)
    if answer.unit and truth.unit and answer.unit != truth.unit:
        return False
    return any(_close(answer.value * scale, truth.value, answer, truth) for scale in _scales(answer, truth))


def _scales(answer: PlainNumber, truth: PlainNumber) -> tuple[Fraction, ...]:
    """`50%` may be answered as 50 and as 0.5, and stand for either."""
    if answer.percent == truth.percent:
        return (Fraction(1),)
    return Fraction(1), Fraction(100) if answer.percent else Fraction(1, 100)


def _close(said: Fraction, wanted: Fraction, answer: PlainNumber, truth: PlainNumber) -> bool:
    if said == wanted:
        return True
    decimal = "decimal" in (answer.kind, truth.kind)
    return decimal and abs(said - wanted) <= TOLERANCE * abs(wanted)


def _measured(number: PlainNumber) -> tuple[str, Fraction] | None:
    """What kind of quantity it is, and how much of it."""
    measure = _MEASURES.get(number.unit)
    return None if measure is None else (measure[0], number.value * measure[1])


def _cleaned(text: str) -> str:
    """Without what only sets the type: `$…$`, `\\boxed{…}`, `\\text{…}`, spacing, a full stop."""
    text = text.strip().replace("−", "-").replace("–", "-").replace("\\$", "$").replace("{,}", ",")
    for before, after in (("$$", "$$"), ("\\(", "\\)"), ("\\[", "\\]"), ("$", "$")):
        if text.startswith(before) and text.endswith(after) and len(text) > len(before) + len(after):
            text = text[len(before) : -len(after)].strip()
            break
    if text.startswith("\\boxed{") and text.endswith("}"):
        text = text[len("\\boxed{") : -1]
    text = _NAME.sub(" ", _TEXT.sub(r" \1", text)).replace("^\\circ", "°").replace("^{\\circ}", "°")
    return text.strip().removesuffix(".").strip()


def _read_fraction(text: str) -> PlainNumber | None:
    if (match := _FRACTION.fullmatch(text)) is None:
        return None
    top = int(match["a"] or match["c"] or match["e"])
    bottom = int(match["b"] or match["d"] or match["f"])
    if bottom == 0 or (match["whole"] and top < 0):
        return None
    value = int(match["whole"] or 0) + Fraction(top, bottom)
    return _with_unit(-value if match["sign"] == "-" else value, "fraction", "", match["rest"])


def _read_decimal(text: str) -> PlainNumber | None:
    if (match := _PLAIN.fullmatch(text)) is None:
        return None
    body = match["body"].replace(",", "")
    value = Fraction(f"{body}0" if body.endswith(".") else body)
    rest = match["rest"]
    if (power := _POWER.match(rest)) is not None:
        value *= Fraction(10) ** int(power[1] or power[2])
        rest = rest[power.end() :]
    kind = "decimal" if "." in body or (power is not None and value.denominator > 1) else "whole"
    negative = "-" in (match["sign"], match["after"])
    return _with_unit(-value if negative else value, kind, match["currency"] or match["before"] or "", rest)


def _with_unit(value: Fraction, kind: str, currency: str, rest: str) -> PlainNumber | None:
    """The number with what follows it, when that is a unit, a percent sign, or the name of what is counted."""
    if not rest.strip():
        return PlainNumber(value, kind, currency)
    if (match := _UNIT.fullmatch(rest.rstrip())) is None:
        return None
    word = match["unit"].lower().rstrip(".")
    if word in ("%", "\\%", "percent"):
        return PlainNumber(value / 100, kind, currency, percent=True)
    first, _, others = word.partition(" ")
    if first in _SCALES:
        return _with_unit(value * _SCALES[first], kind, currency, f" {others}" if others else "")
    return _named(value, kind, currency, word, bool(match["space"]))


def _named(value: Fraction, kind: str, currency: str, word: str, spaced: bool) -> PlainNumber | None:
    unit = word if word in _MEASURES or len(word) < 3 else word.removesuffix("s")
    if unit in _MEASURES:
        return PlainNumber(value, kind, unit)
    known = any(part in _NO_UNITS or len(part) == 1 for part in word.split())
    return None if known or not spaced else PlainNumber(value, kind, currency or unit)
