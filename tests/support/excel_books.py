"""Sixty small workbooks with the values that their formulas have, worked out by hand."""

from __future__ import annotations

from typing import Any

N_A, DIV, VALUE, REF, NUM, NAME = (
    {"error": each} for each in ("#N/A", "#DIV/0!", "#VALUE!", "#REF!", "#NUM!", "#NAME?")
)


def day(text: str) -> dict[str, str]:
    return {"date": f"{text}T00:00:00"}


def moment(text: str) -> dict[str, str]:
    return {"date": text}


def time(text: str) -> dict[str, str]:
    return {"time": text}


STOCK = {
    "A1": "Item", "B1": "Units", "C1": "Price",
    "A2": "pen", "B2": 3, "C2": 1.5,
    "A3": "cup", "B3": 0, "C3": 2.25,
    "A4": "hat", "C4": 9,
    "A5": "pen", "B5": 10, "C5": 1.25,
}  # fmt: skip
DATES = {"A1": day("2024-01-31"), "A2": day("2024-02-29"), "A3": day("2023-12-25"), "A4": moment("2024-03-05T13:30:00")}
TIMES = {"A1": time("08:15:00"), "B1": time("16:45:00"), "A2": time("22:00:00"), "B2": time("06:30:00")}

Book = tuple[dict[str, dict[str, Any]], dict[str, Any]]


def one(cells: dict[str, Any], expected: dict[str, Any]) -> Book:
    """A workbook of one sheet, and what some of its cells show."""
    return {"S": cells}, {f"S!{name}": value for name, value in expected.items()}


BOOKS: dict[str, Book] = {
    # Plain arithmetic
    "sum": one({**STOCK, "E1": "=SUM(B2:B5)"}, {"E1": 13}),
    "order of operations": one({"A1": "=2+3*4^2/8"}, {"A1": 8}),
    "unary minus binds first": one({"A1": "=-2^2", "A2": "=0-2^2"}, {"A1": 4, "A2": -4}),
    "powers from the left": one({"A1": "=2^3^2"}, {"A1": 64}),
    "percent": one({"A1": 200, "A2": "=A1*15%", "A3": "=50%"}, {"A2": 30, "A3": 0.5}),
    "chain of cells": one({"A1": 5, "A2": "=A1*2", "A3": "=A2+A1", "A4": "=A3-A2"}, {"A4": 5}),
    "rounding half away from zero": one(
        {"A1": "=ROUND(2.5,0)", "A2": "=ROUND(-2.5,0)", "A3": "=ROUND(1234,-2)"}, {"A1": 3, "A2": -3, "A3": 1200}
    ),
    "remainder has the sign of the divisor": one({"A1": "=MOD(-3,5)", "A2": "=MOD(3,-5)"}, {"A1": 2, "A2": -2}),
    "int and trunc": one({"A1": "=INT(-2.5)", "A2": "=TRUNC(-2.5)"}, {"A1": -3, "A2": -2}),
    "product of columns": one({**STOCK, "E1": "=SUMPRODUCT(B2:B5,C2:C5)"}, {"E1": 17}),
    # Blanks
    "a blank is zero in arithmetic": one({**STOCK, "E1": "=B4+1", "E2": "=B4*C4"}, {"E1": 1, "E2": 0}),
    "a reference to a blank shows zero": one({"A2": "=A1"}, {"A2": 0}),
    "a blank equals an empty text and zero": one({"B1": '=A1=""', "B2": "=A1=0"}, {"B1": True, "B2": True}),
    "counting": one(
        {**STOCK, "E1": "=COUNT(B2:B5)", "E2": "=COUNTA(A2:A5)", "E3": "=COUNTBLANK(B2:B5)"},
        {"E1": 3, "E2": 4, "E3": 1},
    ),
    "averages leave blanks out, not zeros": one({**STOCK, "E1": "=AVERAGE(B2:B5)"}, {"E1": 13 / 3}),
    "is blank": one({"A1": '=""', "B1": "=ISBLANK(A1)", "B2": "=ISBLANK(A2)"}, {"A1": "", "B1": False, "B2": True}),
    "minimum of nothing": one({"B1": "=MIN(A1:A3)"}, {"B1": 0}),
    # Errors
    "division by zero": one({"A1": "=1/0", "A2": "=A1+1"}, {"A1": DIV, "A2": DIV}),
    "average of nothing": one({"B1": "=AVERAGE(A1:A3)"}, {"B1": DIV}),
    "not found": one({**STOCK, "E1": '=VLOOKUP("bag",A2:C5,2,FALSE)'}, {"E1": N_A}),
    "text in arithmetic": one({"A1": "x", "A2": "=A1+1"}, {"A2": VALUE}),
    "root of a negative number": one({"A1": "=SQRT(-4)"}, {"A1": NUM}),
    "no such function": one({"A1": "=NOSUCHTHING(1)"}, {"A1": NAME}),
    "errors caught": one(
        {"A1": '=IFERROR(1/0,"none")', "A2": "=IFNA(NA(),7)", "A3": "=ISERROR(1/0)", "A4": "=ISNA(1/0)"},
        {"A1": "none", "A2": 7, "A3": True, "A4": False},
    ),
    "an error spreads through a sum": one({"A1": 1, "A2": "=NA()", "A3": "=SUM(A1:A2)"}, {"A3": N_A}),
    "an error not reached": one({"A1": "=IF(TRUE,1,1/0)"}, {"A1": 1}),
    "offset out of the sheet": one({"A1": "=OFFSET(A1,-1,0)"}, {"A1": REF}),
    # Conditions and look-ups
    "if": one({"A1": 7, "B1": '=IF(A1>5,"high","low")', "B2": '=IF(A1>9,"high")'}, {"B1": "high", "B2": False}),
    "and, or, not": one(
        {"A1": "=AND(1<2,2<3)", "A2": "=OR(1>2,2>3)", "A3": "=NOT(1>2)"}, {"A1": True, "A2": False, "A3": True}
    ),
    "sum of some rows": one({**STOCK, "E1": '=SUMIF(A2:A5,"pen",B2:B5)'}, {"E1": 13}),
    "criteria do not see capitals": one({**STOCK, "E1": '=COUNTIF(A2:A5,"PEN")'}, {"E1": 2}),
    "criteria with wildcards": one(
        {**STOCK, "E1": '=COUNTIF(A2:A5,"?a*")', "E2": '=COUNTIF(A2:A5,"p*")'}, {"E1": 1, "E2": 2}
    ),
    "two conditions": one({**STOCK, "E1": '=SUMIFS(C2:C5,A2:A5,"pen",B2:B5,">5")'}, {"E1": 1.25}),
    "average of some rows": one({**STOCK, "E1": '=AVERAGEIF(C2:C5,">1.4")'}, {"E1": 4.25}),
    "exact look-up takes the first": one({**STOCK, "E1": '=VLOOKUP("pen",A2:C5,3,FALSE)'}, {"E1": 1.5}),
    "sorted look-up takes the last that is not larger": one(
        {
            "A1": 0,
            "B1": "F",
            "A2": 50,
            "B2": "C",
            "A3": 80,
            "B3": "A",
            "C1": "=VLOOKUP(79,A1:B3,2,TRUE)",
            "C2": "=LOOKUP(80,A1:A3,B1:B3)",
        },
        {"C1": "C", "C2": "A"},
    ),
    "index and match": one({**STOCK, "E1": '=INDEX(C2:C5,MATCH("hat",A2:A5,0))'}, {"E1": 9}),
    "xlookup": one({**STOCK, "E1": '=_xlfn.XLOOKUP("bag",A2:A5,C2:C5,"none")'}, {"E1": "none"}),
    "rank and order": one(
        {**STOCK, "E1": "=RANK(C2,C2:C5)", "E2": "=LARGE(C2:C5,2)", "E3": "=SMALL(C2:C5,1)"},
        {"E1": 3, "E2": 2.25, "E3": 1.25},
    ),
    "array formula in a product": one({**STOCK, "E1": '=SUMPRODUCT((A2:A5="pen")*(C2:C5>1.3))'}, {"E1": 1}),
    # Texts
    "joined texts": one(
        {"A1": "Ada", "B1": "Berg", "C1": '=B1&", "&A1', "C2": '="n"&1+1'}, {"C1": "Berg, Ada", "C2": "n2"}
    ),
    "parts of a text": one(
        {
            "A1": "AB-1234",
            "B1": '=LEFT(A1,FIND("-",A1)-1)',
            "B2": "=MID(A1,4,2)",
            "B3": "=RIGHT(A1,2)",
            "B4": "=LEN(A1)",
        },
        {"B1": "AB", "B2": "12", "B3": "34", "B4": 7},
    ),
    "cases and spaces": one(
        {"A1": "  a  b ", "B1": "=TRIM(A1)", "B2": '=PROPER("ab cd")', "B3": '=UPPER("x")'},
        {"B1": "a b", "B2": "Ab Cd", "B3": "X"},
    ),
    "texts that are numbers": one(
        {"A1": "12", "B1": "=A1+1", "B2": "=VALUE(A1)*2", "B3": "=SUM(A1:A1)", "B4": "=ISTEXT(A1)"},
        {"B1": 13, "B2": 24, "B3": 0, "B4": True},
    ),
    "formatted numbers": one(
        {"A1": '=TEXT(1234.5,"#,##0.00")', "A2": '=TEXT(0.256,"0%")', "A3": '=TEXT(7,"000")'},
        {"A1": "1,234.50", "A2": "26%", "A3": "007"},
    ),
    "texts compare without capitals": one(
        {"A1": '="a"="A"', "A2": '=EXACT("a","A")', "A3": '="b">"A"'}, {"A1": True, "A2": False, "A3": True}
    ),
    # Dates and times
    "days between": one({**DATES, "B1": "=A2-A1", "B2": "=A1-A3"}, {"B1": 29, "B2": 37}),
    "parts of a date": one(
        {**DATES, "B1": "=YEAR(A2)", "B2": "=MONTH(A2)", "B3": "=DAY(A2)", "B4": "=WEEKDAY(A3,2)"},
        {"B1": 2024, "B2": 2, "B3": 29, "B4": 1},
    ),
    "months later": one(
        {**DATES, "B1": "=EDATE(A1,1)", "B2": "=EOMONTH(A3,2)"}, {"B1": day("2024-02-29"), "B2": day("2024-02-29")}
    ),
    "months that overflow": one(
        {"A1": "=DATE(2023,14,1)", "A2": "=DATE(2024,3,0)"}, {"A1": day("2024-02-01"), "A2": day("2024-02-29")}
    ),
    "dates in criteria": one({**DATES, "B1": '=COUNTIF(A1:A4,">="&DATE(2024,2,1))'}, {"B1": 2}),
    "date as text": one(
        {**DATES, "B1": '=TEXT(A1,"dd/mm/yyyy")', "B2": '=DATEVALUE("2024-03-05")'},
        {"B1": "31/01/2024", "B2": day("2024-03-05")},
    ),
    "working days": one(
        {"A1": "=NETWORKDAYS(DATE(2024,3,1),DATE(2024,3,10))", "A2": "=WORKDAY(DATE(2024,3,1),1)"},
        {"A1": 6, "A2": day("2024-03-04")},
    ),
    "hours between times": one({**TIMES, "C1": "=(B1-A1)*24", "C2": "=MOD(B2-A2,1)*24"}, {"C1": 8.5, "C2": 8.5}),
    "parts of a time": one(
        {**DATES, "B1": "=HOUR(A4)", "B2": "=MINUTE(A4)", "B3": "=TIME(13,30,0)"},
        {"B1": 13, "B2": 30, "B3": time("13:30:00")},
    ),
    "whole hours": one(
        {"A1": moment("2024-03-05T13:00:00"), "B1": "=HOUR(A1)", "A2": time("01:00:00"), "B2": "=HOUR(A2)"},
        {"B1": 13, "B2": 1},
    ),
    # Several sheets
    "cells of another sheet": (
        {"Data": STOCK, "Out": {"A1": "=SUM(Data!B2:B5)", "A2": "=Data!A3"}},
        {"Out!A1": 13, "Out!A2": "cup"},
    ),
    "names with spaces and quotes": (
        {"It's here": {"A1": 4}, "My sheet": {"A1": "='It''s here'!A1*2"}, "Z": {"A1": "='My sheet'!A1+1"}},
        {"My sheet!A1": 8, "Z!A1": 9},
    ),
    "there and back": (
        {"One": {"A1": 2, "A2": "=Two!A1+1"}, "Two": {"A1": "=One!A1*10", "A2": "=SUM(One!A1:A2)"}},
        {"One!A2": 21, "Two!A1": 20, "Two!A2": 23},
    ),
    "whole columns": (
        {"Data": STOCK, "Out": {"A1": "=SUM(Data!B:B)", "A2": '=SUMIF(Data!A:A,"pen",Data!B:B)'}},
        {"Out!A1": 13, "Out!A2": 13},
    ),
    "look-up on another sheet": (
        {
            "Data": STOCK,
            "Out": {
                "A1": "hat",
                "B1": "=VLOOKUP(A1,Data!$A$2:$C$5,3,FALSE)",
                "A2": "bag",
                "B2": '=IFERROR(VLOOKUP(A2,Data!$A$2:$C$5,3,FALSE),"none")',
            },
        },
        {"Out!B1": 9, "Out!B2": "none"},
    ),
    "circular": one({"A1": "=A2+1", "A2": "=A1+1"}, {"A1": {"error": "#CIRC!"}}),
}
"""By name: the cells, and what some of them show."""
