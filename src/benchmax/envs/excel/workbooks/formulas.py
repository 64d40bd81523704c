"""What the text of a formula says: functions, references, and whether ironcalc can be relied on for it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

import ironcalc
from openpyxl.utils import FORMULAE

from .ranges import Area, parse_area

_STRING = re.compile(r'"[^"]*(?:""[^"]*)*"')
_FUNCTION = re.compile(r"([A-Za-z_][A-Za-z0-9_.]*)\(")
_SHEET = r"(?:'(?:[^']|'')+'|[A-Za-z_\u0080-\uffff][A-Za-z0-9_.\u0080-\uffff]*)!"
_REFERENCE = re.compile(
    rf"(?<![A-Za-z0-9_.])({_SHEET})?(\$?[A-Za-z]{{1,3}}\$?[0-9]{{1,7}}(?::\$?[A-Za-z]{{1,3}}\$?[0-9]{{1,7}})?"
    r"|\$?[A-Za-z]{1,3}:\$?[A-Za-z]{1,3}|\$?[0-9]{1,7}:\$?[0-9]{1,7})(?![A-Za-z0-9_.(!])"
)
_INTERSECTION = re.compile(r"[A-Za-z0-9$)]\s+(?=[$'(]?[A-Za-z])(?!(?i:and|or)\b)")
_THREE_D = re.compile(r"(?:[A-Za-z0-9_]+:[A-Za-z0-9_]+|'[^']*:[^']*')!")
_QUOTED = re.compile(r"'(?:[^']|'')*'!")
_FORMAT = re.compile(r'\bTEXT\([^"]*"[^"]*[?@][^"]*"\)', re.IGNORECASE)
"""Fractions and texts, which ironcalc's TEXT does not format."""
_HOUR = re.compile(r"(?<![A-Za-z0-9_.])HOUR\((?!\s*\")", re.IGNORECASE)
_CONDITIONAL = re.compile(
    r"(?<![A-Za-z0-9])(?:SUMIFS?|AVERAGEIFS?|COUNTIFS|MAXIFS|MINIFS)\(((?:[^()]|\([^()]*\))*)", re.IGNORECASE
)
_NESTED = re.compile(r"\([^()]*\)")
_NAME = re.compile(r"(?<![A-Za-z0-9_.$!'])([A-Za-z_\\][A-Za-z0-9_.]*)(?![A-Za-z0-9_.(!:])")
DYNAMIC = frozenset({"INDIRECT", "OFFSET"})
"""Functions whose references are not in the text."""
VOLATILE = frozenset({"NOW", "TODAY", "RAND", "RANDBETWEEN", "RANDARRAY"})
NEWER = frozenset("""
ACOT ACOTH AGGREGATE ARABIC ARRAYTOTEXT BASE BETA.DIST BETA.INV BINOM.DIST BINOM.DIST.RANGE BINOM.INV BITAND
BITLSHIFT BITOR BITRSHIFT BITXOR BYCOL BYROW CEILING.MATH CEILING.PRECISE CHISQ.DIST CHISQ.DIST.RT CHISQ.INV
CHISQ.INV.RT CHISQ.TEST CHOOSECOLS CHOOSEROWS COMBINA CONCAT CONFIDENCE.NORM CONFIDENCE.T COT COTH COVARIANCE.P
COVARIANCE.S CSC CSCH DAYS DECIMAL DROP ENCODEURL ERF.PRECISE ERFC.PRECISE EXPAND EXPON.DIST F.DIST F.DIST.RT
F.INV F.INV.RT F.TEST FIELDVALUE FILTER FILTERXML FLOOR.MATH FLOOR.PRECISE FORECAST.ETS FORECAST.ETS.CONFINT
FORECAST.ETS.SEASONALITY FORECAST.ETS.STAT FORECAST.LINEAR FORMULATEXT GAMMA GAMMA.DIST GAMMA.INV
GAMMALN.PRECISE GAUSS GROUPBY HSTACK HYPGEOM.DIST IFERROR IFNA IFS IMAGE IMCOSH IMCOT IMCSC IMCSCH IMSEC IMSECH
IMSINH IMTAN ISFORMULA ISOMITTED ISO.CEILING ISOWEEKNUM LAMBDA LET LOGNORM.DIST LOGNORM.INV MAKEARRAY MAP MAXIFS
MINIFS MODE.MULT MODE.SNGL MUNIT NEGBINOM.DIST NETWORKDAYS.INTL NORM.DIST NORM.INV NORM.S.DIST NORM.S.INV
NUMBERVALUE PDURATION PERCENTILE.EXC PERCENTILE.INC PERCENTOF PERCENTRANK.EXC PERCENTRANK.INC PERMUTATIONA PHI
PIVOTBY POISSON.DIST QUARTILE.EXC QUARTILE.INC RANDARRAY RANK.AVG RANK.EQ REDUCE REGEXEXTRACT REGEXREPLACE
REGEXTEST RRI SCAN SEC SECH SEQUENCE SHEET SHEETS SKEW.P SORT SORTBY STDEV.P STDEV.S SWITCH T.DIST T.DIST.2T
T.DIST.RT T.INV T.INV.2T T.TEST TAKE TEXTAFTER TEXTBEFORE TEXTJOIN TEXTSPLIT TOCOL TOROW TRIMRANGE UNICHAR
UNICODE UNIQUE VALUETOTEXT VAR.P VAR.S VSTACK WEBSERVICE WEIBULL.DIST WORKDAY.INTL WRAPCOLS WRAPROWS XLOOKUP
XMATCH XOR Z.TEST ANCHORARRAY SINGLE TRANSLATE DETECTLANGUAGE STOCKHISTORY CUBEKPIMEMBER COPILOT
""".split())  # fmt: skip  # noqa: SIM905
"""Functions of Excel that openpyxl's own list does not have."""


def bare(formula: str) -> str:
    """The formula without the texts in it."""
    return _STRING.sub('""', formula)


def functions(formula: str) -> set[str]:
    names = (name.upper() for name in _FUNCTION.findall(bare(formula)))
    return {name.removeprefix("_XLFN.").removeprefix("_XLWS.") for name in names}


def references(formula: str) -> Iterator[Area]:
    """Areas that the formula names."""
    for sheet, cells in _REFERENCE.findall(bare(formula)):
        try:
            yield parse_area(sheet + cells)
        except ValueError:
            continue


def names(formula: str) -> set[str]:
    """Words of the formula that may be defined names."""
    return {word.casefold() for word in _NAME.findall(bare(formula))}


@cache
def unsupported() -> frozenset[str]:
    """Functions of Excel that ironcalc does not know."""
    known = sorted(set(FORMULAE) | NEWER)
    model = ironcalc.create("probe", "en", "UTC", "en")
    for row, name in enumerate(known, 1):
        model.set_user_input(0, row, 1, f"={name}()")
    model.evaluate()
    return frozenset(name for row, name in enumerate(known, 1) if model.get_cell_value(0, row, 1) == "#NAME?")


def corrected(formula: str) -> str:
    """The formula with which ironcalc computes what this one means.

    HOUR does not round, and takes 13:00 of most days for 12: a millisecond is added to its argument.
    """
    return _HOUR.sub("HOUR(1E-8+", formula) if _HOUR.search(bare(formula)) else formula


def doubt(formula: str, as_read: str) -> str | None:
    """Why ironcalc may not compute this formula as Excel does; `as_read` is the formula as it understood it."""
    plain = bare(formula)
    if missing := functions(formula) & unsupported():
        return f"{min(missing)} is not computed here"
    if _FORMAT.search(formula):
        return "a number format is not applied here"
    if "[" in plain:
        return "references to tables and other files are not computed here"
    if _THREE_D.search(plain):
        return "references across sheets are not computed here"
    plain = _QUOTED.sub("Q!", plain)
    if re.search(r"[A-Za-z0-9]#", plain):
        return "references to spilled ranges are not computed here"
    if as_read == formula and _INTERSECTION.search(plain):
        return "intersections of ranges are not computed here"
    if _QUOTED.sub("Q!", bare(as_read))[2:].count("@") > plain[2:].count("@"):
        return "a range was taken for one of its cells"
    if any(_unequal(found[1]) for found in _CONDITIONAL.finditer(bare(formula))):
        return "conditions on ranges of different sizes are not computed here"
    return None


def only_powers_divide(formula: str) -> bool:
    """Whether there are powers in it, and nothing else that would divide by zero."""
    plain = bare(formula)
    return "/" not in plain and ("^" in plain or "POWER" in functions(formula))


def _unequal(arguments: str) -> bool:
    """Whether ranges among the arguments of a call differ in size."""
    areas = [area for area in references(_NESTED.sub("", arguments)) if area.size > 1]
    return len({(area.bottom and area.bottom - area.top, area.right and area.right - area.left) for area in areas}) > 1
