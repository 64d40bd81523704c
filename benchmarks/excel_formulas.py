"""How often ironcalc and LibreOffice agree: `python benchmarks/excel_formulas.py [--formulas 2000] [--seed 0]`.

Formulas of many kinds are generated over a sheet with numbers, texts, dates, times and blanks, and both programs
compute them. Values agree as the Excel environment's strict comparison says. There are no booleans on the sheet: to
LibreOffice they are numbers, to Excel and ironcalc they are not. LibreOffice must be installed.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

from benchmax.envs.excel.libreoffice_client import SecondOpinion, python_with_uno
from benchmax.envs.excel.reward import judge
from benchmax.envs.excel.row_shapes import workbook_of
from benchmax.envs.excel.workbook_sandbox import WorkbookSandbox
from benchmax.envs.excel.workbooks.typed_values import prefixed

ROWS = 24
NUMBERS, OTHERS, TEXTS, REGIONS, DATES, TIMES, GAPS = "A", "B", "C", "D", "E", "F", "G"
WORDS = ("lamp", "chair", "desk", "shelf", "rug", "clock", "vase", "Mirror lamp", "stool-7", "sofa, red")
Draw = random.Random


def data(draw: Draw) -> dict[str, Any]:
    """A column of each kind, then a few odd cells."""
    cells: dict[str, Any] = {}
    for row in range(1, ROWS + 1):
        cells[f"{NUMBERS}{row}"] = draw.randint(-50, 200)
        cells[f"{OTHERS}{row}"] = round(draw.uniform(0.5, 90), 2)
        cells[f"{TEXTS}{row}"] = draw.choice(WORDS)
        cells[f"{REGIONS}{row}"] = draw.choice(("North", "South", "East", "West"))
        cells[f"{DATES}{row}"] = {
            "date": f"20{draw.randint(20, 25)}-{draw.randint(1, 12):02}-{draw.randint(1, 28):02}T00:00:00"
        }
        cells[f"{TIMES}{row}"] = {"time": f"{draw.randint(0, 23):02}:{draw.choice((0, 15, 30, 45)):02}:00"}
        if draw.random() < 0.6:
            cells[f"{GAPS}{row}"] = draw.choice([draw.randint(1, 99), draw.choice(WORDS)])
    return cells


def cell(draw: Draw, column: str) -> str:
    return f"Data!{draw.choice(('', '$'))}{column}{draw.randint(1, ROWS)}"


def span(draw: Draw, column: str) -> str:
    first = draw.randint(1, ROWS - 3)
    return f"Data!{column}{first}:{column}{draw.randint(first + 2, ROWS)}"


def whole(column: str) -> str:
    return f"Data!{column}$1:{column}${ROWS}"


def number(draw: Draw) -> str:
    return draw.choice([cell(draw, NUMBERS), cell(draw, OTHERS), str(draw.randint(1, 40))])


def arithmetic(draw: Draw, depth: int = 3) -> str:
    if depth == 0 or draw.random() < 0.2:
        return number(draw)
    left, right = arithmetic(draw, depth - 1), arithmetic(draw, depth - 1)
    return draw.choice(["({}+{})", "({}-{})", "({}*{})", "({}/{})", "-({}+{})", "MAX({},{})", "MIN({},{})"]).format(
        left, right
    )


def aggregate(draw: Draw) -> str:
    name = draw.choice(
        [
            "SUM",
            "AVERAGE",
            "MIN",
            "MAX",
            "COUNT",
            "COUNTA",
            "MEDIAN",
            "STDEV",
            "STDEVP",
            "VAR",
            "VARP",
            "PRODUCT",
            "SUMSQ",
            "AVEDEV",
            "DEVSQ",
            "COUNTBLANK",
        ]
    )
    column = draw.choice([NUMBERS, OTHERS, GAPS, DATES])
    if name == "PRODUCT":
        column = OTHERS
    return f"{name}({span(draw, column)})"


def rounded(draw: Draw) -> str:
    name = draw.choice(["ROUND", "ROUNDUP", "ROUNDDOWN", "TRUNC"])
    return f"{name}({arithmetic(draw, 1)},{draw.randint(-1, 3)})"


def single(draw: Draw) -> str:
    name = draw.choice(
        ["ABS", "INT", "SIGN", "SQRT", "EXP", "LN", "LOG10", "SIN", "COS", "ATAN", "EVEN", "ODD", "ISODD", "ISEVEN"]
    )
    value = f"{cell(draw, OTHERS)}/10" if name == "EXP" else number(draw)
    return f"{name}({value})"


def whole_numbers(draw: Draw) -> str:
    a, b = draw.randint(1, 60), draw.randint(1, 12)
    return draw.choice(
        [
            f"MOD({cell(draw, NUMBERS)},{b})",
            f"QUOTIENT({a},{b})",
            f"GCD({a},{b})",
            f"LCM({a},{b})",
            f"COMBIN({a + 12},{b})",
            f"FACT({b})",
            f"CEILING({a}.3,{b})",
            f"FLOOR({a}.3,{b})",
            f"POWER({a},{b}/4)",
        ]
    )


def conditional(draw: Draw) -> str:
    sign = draw.choice([">", "<", ">=", "<=", "=", "<>"])
    test = f"{cell(draw, NUMBERS)}{sign}{number(draw)}"
    other = f"{cell(draw, OTHERS)}{draw.choice(['>', '<'])}{draw.randint(5, 80)}"
    return draw.choice(
        [
            f'IF({test},"yes","no")',
            f"IF(AND({test},{other}),1,2)",
            f"IF(OR({test},{other}),{number(draw)},{number(draw)})",
            f"NOT({test})",
            f"{test}",
            f'IF({test},IF({other},"a","b"),"c")',
            f"IFERROR({number(draw)}/0,{number(draw)})",
        ]
    )


def criterion(draw: Draw) -> tuple[str, str]:
    return draw.choice(
        [
            (REGIONS, '"North"'),
            (REGIONS, '"<>East"'),
            (REGIONS, f"{cell(draw, REGIONS)}"),
            (TEXTS, '"s*"'),
            (TEXTS, '"?ug"'),
            (NUMBERS, f'">{draw.randint(0, 120)}"'),
            (OTHERS, f'"<="&{draw.randint(10, 80)}'),
            (NUMBERS, f"{draw.randint(0, 99)}"),
            (DATES, f'">="&DATE(20{draw.randint(20, 25)},{draw.randint(1, 12)},1)'),
        ]
    )


def some_rows(draw: Draw) -> str:
    (one, test), (other, second) = criterion(draw), criterion(draw)
    values = whole(draw.choice([NUMBERS, OTHERS]))
    return draw.choice(
        [
            f"COUNTIF({whole(one)},{test})",
            f"SUMIF({whole(one)},{test},{values})",
            f"AVERAGEIF({whole(one)},{test},{values})",
            f"COUNTIFS({whole(one)},{test},{whole(other)},{second})",
            f"SUMIFS({values},{whole(one)},{test},{whole(other)},{second})",
            f"AVERAGEIFS({values},{whole(one)},{test})",
            f"MAXIFS({values},{whole(one)},{test})",
            f"MINIFS({values},{whole(one)},{test})",
            f'SUMPRODUCT(({whole(REGIONS)}="South")*({values}>{draw.randint(0, 60)})*{whole(NUMBERS)})',
            f"SUMPRODUCT({whole(NUMBERS)},{whole(OTHERS)})",
            f'SUMPRODUCT(--({whole(TEXTS)}="desk"))',
        ]
    )


def looked_up(draw: Draw) -> str:
    key = draw.choice([cell(draw, TEXTS), '"chair"', '"nothing"'])
    return draw.choice(
        [
            f"VLOOKUP({key},Data!C$1:G${ROWS},2,FALSE)",
            f"INDEX({whole(NUMBERS)},MATCH({key},{whole(TEXTS)},0))",
            f"INDEX(Data!A1:G{ROWS},{draw.randint(1, ROWS)},{draw.randint(1, 4)})",
            f"MATCH({cell(draw, OTHERS)},{whole(OTHERS)},0)",
            f"LARGE({whole(OTHERS)},{draw.randint(1, 9)})",
            f"SMALL({whole(NUMBERS)},{draw.randint(1, 9)})",
            f"RANK({cell(draw, OTHERS)},{whole(OTHERS)})",
            f"CHOOSE({draw.randint(1, 3)},{number(draw)},{key},{number(draw)})",
            f"OFFSET(Data!A1,{draw.randint(0, 9)},{draw.randint(0, 3)})",
            f'INDIRECT("Data!B{draw.randint(1, ROWS)}")',
            f"QUARTILE({whole(OTHERS)},{draw.randint(0, 4)})",
            f"PERCENTILE({whole(NUMBERS)},0.{draw.randint(1, 9)})",
            f"HLOOKUP({cell(draw, NUMBERS)},Data!A1:B5,2,FALSE)",
            f'LOOKUP({draw.randint(1, 3)},{{1,2,3}},{{"x","y","z"}})',
        ]
    )


def text(draw: Draw) -> str:
    word, other, count = cell(draw, TEXTS), cell(draw, REGIONS), draw.randint(1, 5)
    return draw.choice(
        [
            f"LEFT({word},{count})",
            f"RIGHT({word},{count})",
            f"MID({word},2,{count})",
            f"LEN({word})",
            f"UPPER({word})",
            f"LOWER({other})",
            f"PROPER({word})",
            f'TRIM("  "&{word}&"  ")',
            f'{word}&" "&{other}',
            f"CONCATENATE({word},{other})",
            f'FIND("a",{word})',
            f'SEARCH("L",{word})',
            f'SUBSTITUTE({word},"l","1")',
            f'REPLACE({word},1,{count},"x")',
            f'REPT("ab",{count})',
            f"EXACT({word},{cell(draw, TEXTS)})",
            f"CODE({word})",
            f"CHAR({60 + count})",
            f"{word}={word}",
            f'TEXT({cell(draw, OTHERS)},"0.00")',
            f'TEXT({cell(draw, NUMBERS)},"000")',
            f'TEXT({cell(draw, DATES)},"yyyy-mm-dd")',
            f'VALUE("{count}2.5")',
            f'TEXTJOIN("-",TRUE,{span(draw, TEXTS)})',
            f'IF({word}>"m",{word},{other})',
            f"T({word})",
        ]
    )


def dated(draw: Draw) -> str:
    at, other, time, count = cell(draw, DATES), cell(draw, DATES), cell(draw, TIMES), draw.randint(-14, 30)
    return draw.choice(
        [
            f"YEAR({at})",
            f"MONTH({at})",
            f"DAY({at})",
            f"WEEKDAY({at})",
            f"WEEKDAY({at},2)",
            f"{at}+{abs(count)}",
            f"{at}-{other}",
            f"DATE(YEAR({at}),MONTH({at})+{count},1)",
            f"EDATE({at},{count})",
            f"EOMONTH({at},{count})",
            f"DAYS({at},{other})",
            f"NETWORKDAYS({at},{other})",
            f"WORKDAY({at},{abs(count)})",
            f"WEEKNUM({at})",
            f"ISOWEEKNUM({at})",
            f"HOUR({time})",
            f"MINUTE({time})",
            f"({time}-{cell(draw, TIMES)})*24",
            f"TIME({abs(count) % 24},30,0)",
            f"{at}>{other}",
            f"MAX({span(draw, DATES)})",
            f'DATEDIF(MIN({at},{other}),MAX({at},{other}),"{draw.choice(["d", "m", "y"])}")',
            f"YEARFRAC({at},{other})",
            f'DATEVALUE("20{draw.randint(20, 25)}-0{draw.randint(1, 9)}-11")',
        ]
    )


def odd_cells(draw: Draw) -> str:
    gap, area = cell(draw, GAPS), span(draw, GAPS)
    return draw.choice(
        [
            f"ISBLANK({gap})",
            f"ISNUMBER({gap})",
            f"ISTEXT({gap})",
            f"ISLOGICAL({gap})",
            f'IF({gap}="","blank","full")',
            f"N({gap})",
            f"IFERROR({gap}*2,0)",
            f'{gap}&""',
            f"COUNTA({area})",
            f"COUNT({area})",
            f"SUM({area})",
            f"ISERROR({gap}/0)",
            f"{number(draw)}/0",
            "NA()",
            f"ISNA(MATCH(-999,{whole(NUMBERS)},0))",
            'IFERROR(VLOOKUP("none",Data!C1:D9,2,FALSE),"missing")',
            f"TYPE({gap})",
            "SQRT(-1)",
            f"ERROR.TYPE({number(draw)}/0)",
            "ISERR(NA())",
            f"ISREF({gap})",
            f"AND(TRUE,{number(draw)}>0)",
        ]
    )


def money(draw: Draw) -> str:
    rate, years, amount = f"0.0{draw.randint(1, 9)}", draw.randint(2, 30), draw.randint(100, 9000)
    return draw.choice(
        [
            f"PMT({rate},{years},{amount})",
            f"FV({rate},{years},-{amount})",
            f"PV({rate},{years},-{amount})",
            f"NPER({rate},-{amount},{amount})",
            f"NPV({rate},{span(draw, OTHERS)})",
            f"SLN({amount},{amount // 10},{years})",
            f"IPMT({rate},1,{years},{amount})",
            f"PPMT({rate},2,{years},{amount})",
            f"RATE({years},-{amount},{amount * (years - 1)})",
            f"EFFECT({rate},12)",
        ]
    )


KINDS: dict[str, Callable[[Draw], str]] = {
    "arithmetic": arithmetic,
    "aggregate": aggregate,
    "rounded": rounded,
    "single": single,
    "whole numbers": whole_numbers,
    "conditional": conditional,
    "some rows": some_rows,
    "looked up": looked_up,
    "text": text,
    "dated": dated,
    "odd cells": odd_cells,
    "money": money,
}


def formulas(count: int, draw: Draw) -> list[tuple[str, str]]:
    """Different ones, as many of each kind."""
    found: dict[str, str] = {}
    kinds = list(KINDS)
    while len(found) < count:
        kind = kinds[len(found) % len(kinds)] if draw.random() < 0.9 else draw.choice(kinds)
        found.setdefault(prefixed("=" + KINDS[kind](draw)), kind)
    return list(found.items())


async def compared(count: int, seed: int) -> list[tuple[str, str, Any, Any]]:
    draw = random.Random(seed)
    made = formulas(count, draw)
    column = {f"A{row}": {"formula": formula, "value": None} for row, (formula, _) in enumerate(made, 1)}
    content = workbook_of({"sheets": {"Data": data(draw), "Made": column}})
    cells = {"Made": list(column)}
    async with WorkbookSandbox(libreoffice=False) as books:
        ours = await books.read(content, cells)
    other = SecondOpinion(seconds=300)
    theirs = await other.values(content, cells, [])
    await other.close()
    if theirs is None:
        sys.exit("LibreOffice gave no answer.")
    names = [(name, formula, kind) for name, (formula, kind) in zip(column, made, strict=True)]
    return [(kind, formula, ours["cells"]["Made"][n], theirs["cells"]["Made"][n]) for n, formula, kind in names]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--formulas", type=int, default=2000)
    options.add_argument("--seed", type=int, default=0)
    given = options.parse_args()
    if python_with_uno() is None:
        sys.exit("LibreOffice with Python's uno is not installed: apt-get install libreoffice-calc-nogui python3-uno")
    found = asyncio.run(compared(given.formulas, given.seed))
    differ = [(kind, formula, a, b) for kind, formula, a, b in found if judge(a, b) is not True]
    for kind, formula, ours, theirs in differ:
        print(f"{kind}: {formula}  ironcalc {ours!r}  LibreOffice {theirs!r}")
    for kind, of_kind in Counter(kind for kind, *_ in found).items():
        print(f"{kind}: {of_kind - sum(each[0] == kind for each in differ)} of {of_kind}")
    print(f"agree on {len(found) - len(differ)} of {len(found)}: {1 - len(differ) / len(found):.2%}")


if __name__ == "__main__":
    main()
