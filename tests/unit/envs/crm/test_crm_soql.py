"""SOQL and SOSL: what they mean, checked against SQL and Python on the same records, and what they refuse."""

from __future__ import annotations

import random
import sqlite3
from typing import Any

import pytest

from benchmax import limits
from benchmax.envs.crm.company import company_of
from benchmax.envs.crm.org.base import QueryError
from benchmax.envs.crm.org.embedded import EmbeddedOrg, org_of
from benchmax.envs.crm.org.schema import OBJECTS, Field, Type
from benchmax.envs.crm.soql import quoting
from benchmax.envs.crm.soql.search import words_of

COMPANY = company_of(0)
ORG = org_of(0)
TEXTS = (Type.TEXT, Type.EMAIL, Type.PHONE)
FUZZED = ("Account", "Case", "Contact", "Order", "OrderItem", "CaseHistory__c", "Knowledge__kav")


def plain_database() -> sqlite3.Connection:
    """The same records in tables without types, made without the code that is tested."""
    database = sqlite3.connect(":memory:")
    for name in FUZZED:
        columns = [field.name for field in OBJECTS[name].fields]
        database.execute(f'CREATE TABLE "{name}" ({", ".join(columns)})')
        places = ", ".join("?" * len(columns))
        rows = [[row.get(column) for column in columns] for row in COMPANY.table(name)]
        database.executemany(f'INSERT INTO "{name}" VALUES ({places})', rows)
    return database


class Queries:
    """Random queries, each in SOQL and in SQL."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.name = rng.choice(FUZZED)
        self.fields = [field for field in OBJECTS[self.name].fields if field.type is not Type.LONG_TEXT]

    def value(self, field: Field) -> Any:
        """A value that some record has, at times spoilt."""
        value = self.rng.choice(COMPANY.table(self.name)).get(field.name)
        if isinstance(value, str) and field.type in TEXTS and self.rng.random() < 0.2:
            return value + self.rng.choice(["'", '"', "\\", "%", " OR 1=1", "x"])
        return value

    def condition(self, depth: int = 0) -> tuple[str, str]:
        if depth < 3 and self.rng.random() < 0.45:
            operator = self.rng.choice([" AND ", " OR "])
            parts = [self.condition(depth + 1) for _ in range(self.rng.randrange(2, 4))]
            soql, sql = (operator.join(f"({part[at]})" for part in parts) for at in (0, 1))
            return (f"NOT ({soql})", f"NOT ({sql})") if self.rng.random() < 0.25 else (soql, sql)
        field = self.rng.choice(self.fields)
        if field.type in TEXTS and self.rng.random() < 0.25:
            return self.like(field)
        if field.type is not Type.BOOLEAN and self.rng.random() < 0.25:
            return self.membership(field)
        return self.comparison(field)

    def comparison(self, field: Field) -> tuple[str, str]:
        value = self.value(field)
        ordered = value is not None and field.type is not Type.BOOLEAN
        operator = self.rng.choice(["=", "!=", "<", "<=", ">", ">="] if ordered else ["=", "!="])
        column = collated(field)
        if operator in "!=":
            return (
                f"{field.name} {operator} {soql_of(value, field)}",
                f"{column} IS {'NOT ' * (operator == '!=')}{sql_of(value)}",
            )
        return f"{field.name} {operator} {soql_of(value, field)}", f"IFNULL({column} {operator} {sql_of(value)}, 0)"

    def membership(self, field: Field) -> tuple[str, str]:
        values = [self.value(field) for _ in range(self.rng.randrange(1, 5))]
        negated = self.rng.random() < 0.4
        soql = f"{field.name} {'NOT ' * negated}IN ({', '.join(soql_of(each, field) for each in values)})"
        sql = " OR ".join(f"{collated(field)} IS {sql_of(each)}" for each in values)
        return soql, f"NOT ({sql})" if negated else f"({sql})"

    def like(self, field: Field) -> tuple[str, str]:
        value = str(self.value(field) or "a")
        part = value[self.rng.randrange(len(value)) :][:4] or "a"
        escaped = "".join(f"!{char}" if char in "%_!" else char for char in part)
        soql_part = quoting.text(part)[1:-1].replace("%", r"\%").replace("_", r"\_")
        return f"{field.name} LIKE '%{soql_part}%'", f"IFNULL({field.name} LIKE {sql_of(f'%{escaped}%')} ESCAPE '!', 0)"


def collated(field: Field) -> str:
    return f"{field.name} COLLATE NOCASE" if field.type in TEXTS else field.name


def soql_of(value: Any, field: Field) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if field.type is Type.DATETIME:
        return str(value).replace("+0000", "Z")
    return quoting.text(value) if isinstance(value, str) and field.type is not Type.DATE else str(value)


def sql_of(value: Any) -> str:
    if value is None:
        return "NULL"
    return str(int(value)) if isinstance(value, bool | int) else "'" + str(value).replace("'", "''") + "'"


async def test_random_queries_find_what_sql_finds():
    plain = plain_database()
    found = 0
    for seed in range(400):
        queries = Queries(random.Random(seed))
        soql, sql = queries.condition()
        wanted = {row[0] for row in plain.execute(f'SELECT Id FROM "{queries.name}" WHERE {sql}')}
        if len(wanted) > limits.CRM_QUERY_ROWS:
            continue
        rows = await ORG.soql(f"SELECT Id FROM {queries.name} WHERE {soql}")
        assert {row["Id"] for row in rows} == wanted, soql
        found += 0 < len(wanted) < len(COMPANY.table(queries.name))
    assert found > 200  # most of them tell records apart
    plain.close()


async def test_random_groups_count_what_sql_counts():
    plain = plain_database()
    for seed in range(60):
        rng = random.Random(seed)
        queries = Queries(rng)
        field = rng.choice([each for each in queries.fields if each.type is not Type.ID])
        soql, sql = queries.condition()
        rows = await ORG.soql(
            f"SELECT {field.name}, COUNT(Id) n FROM {queries.name} WHERE {soql} GROUP BY {field.name} "
            "HAVING COUNT(Id) > 1 ORDER BY COUNT(Id) DESC LIMIT 2000"
        )
        counted = plain.execute(
            f'SELECT {field.name}, COUNT(Id) FROM "{queries.name}" WHERE {sql} GROUP BY {collated(field)} '
            "HAVING COUNT(Id) > 1"
        ).fetchall()
        assert {(row.get(field.name), row["n"]) for row in rows} == set(counted)
        assert [row["n"] for row in rows] == sorted((row["n"] for row in rows), reverse=True)
    plain.close()


async def test_paths_semi_joins_and_date_literals():
    contacts = await ORG.soql("SELECT Name, Account.Name FROM Contact WHERE Account.ShippingState = 'CA' ORDER BY Name")
    accounts = COMPANY.by_id("Account")
    wanted = [each for each in COMPANY.table("Contact") if accounts[each["AccountId"]]["ShippingState"] == "CA"]
    assert [row["Name"] for row in contacts] == sorted(each["Name"] for each in wanted)
    assert {row["Account"]["Name"] for row in contacts} == {accounts[each["AccountId"]]["Name"] for each in wanted}
    semi = await ORG.soql(
        "SELECT COUNT() FROM Contact WHERE AccountId IN (SELECT Id FROM Account WHERE ShippingState = 'CA')"
    )
    assert semi == [{"expr0": len(wanted)}]
    last = await ORG.soql("SELECT COUNT() FROM Case WHERE CreatedDate = LAST_YEAR")  # today is in January 2023
    assert last == [{"expr0": sum(case["CreatedDate"] > "2022" for case in COMPANY.table("Case"))}]


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("", "MALFORMED_QUERY"),
        ("SELECT * FROM Case", "MALFORMED_QUERY"),
        ("SELECT Id FROM sqlite_master", "INVALID_TYPE"),
        ("SELECT rowid FROM Case", "INVALID_FIELD"),
        ('SELECT "Id" FROM Case', "MALFORMED_QUERY"),
        ("SELECT Id FROM Case; DROP TABLE Case", "MALFORMED_QUERY"),
        ("SELECT Id FROM Case -- all", "MALFORMED_QUERY"),
        ("SELECT Id FROM Case UNION SELECT Id FROM Account", "MALFORMED_QUERY"),
        ("SELECT Id FROM Case, Account", "MALFORMED_QUERY"),
        ("SELECT Id FROM Case WHERE Status = 'x' OR 1=1", "MALFORMED_QUERY"),
        ("SELECT Id FROM Case WHERE Status = 'a' AND Origin = 'b' OR Priority = 'c'", "MALFORMED_QUERY"),
        ("SELECT load_extension('x') FROM Case", "MALFORMED_QUERY"),
        ("SELECT Id FROM Case WHERE Status = 5", "INVALID_FIELD"),
        ("SELECT Id FROM Case WHERE CreatedDate > '2022-01-01'", "INVALID_FIELD"),
        ("SELECT Id FROM CaseHistory__c", "OPERATION_TOO_LARGE"),
        ("SELECT Id FROM Case WHERE " + "(" * 40 + "Status = 'x'" + ")" * 40, "MALFORMED_QUERY"),
        ("SELECT Id FROM Case WHERE Status = '" + "x" * 30_000 + "'", "QUERY_TOO_LONG"),
        ("SELECT Id, (SELECT Id FROM Cases) FROM Account", "MALFORMED_QUERY"),
    ],
)
async def test_what_is_no_query_is_refused_with_a_code(query, code):
    with pytest.raises(QueryError) as caught:
        await ORG.soql(query)
    assert caught.value.code == code


async def test_no_value_ends_its_literal():
    """Whatever a text holds, it is compared as a text: a query made with it finds that record alone."""
    rng = random.Random(1)
    known = COMPANY.table("Account")[0]["Name"]
    for _ in range(300):
        text = "".join(rng.choice("ab'\"\\%_(){}[];-*?\n\t ,.=") for _ in range(rng.randrange(1, 20)))
        assert await ORG.soql(f"SELECT Id FROM Account WHERE Name = {quoting.text(text)}") == []
        both = await ORG.soql(f"SELECT Name FROM Account WHERE Name IN {quoting.texts([text, known])}")
        assert both == [{"Name": known}]
        if any(map(str.isalpha, text)):
            search = f"FIND {{zzzz{quoting.search_words(text)}}} RETURNING Issue__c(Name)"
            assert await ORG.sosl(search) == []


async def test_noise_never_breaks_the_parsers():
    rng = random.Random(2)
    words = "SELECT FROM WHERE Id Case Account.Name ( ) , = != LIKE IN 'x' 5 null AND OR NOT GROUP BY LIMIT FIND {a}"
    words = [*words.split(" "), "RETURNING"]
    refused = 0
    for _ in range(2_000):
        query = " ".join(rng.choices(words, k=rng.randrange(1, 14)))
        for ask in (ORG.soql, ORG.sosl):
            try:
                await ask(query)
            except QueryError:
                refused += 1
    assert refused > 3_900


async def test_random_searches_find_the_records_that_have_the_words():
    rng = random.Random(3)
    articles = COMPANY.table("Knowledge__kav")
    fields = [field.name for field in OBJECTS["Knowledge__kav"].fields if field.type in (*TEXTS, Type.LONG_TEXT)]
    texts = {row["Id"]: set(words_of(" ".join(str(row[name]) for name in fields))) for row in articles}
    vocabulary = [word for word in sorted(set().union(*texts.values())) if len(word) > 4]
    for _ in range(120):
        one, two, three = rng.sample(vocabulary, 3)
        rows = await ORG.sosl(f"FIND {{({one} OR {two}) AND NOT {three}}} RETURNING Knowledge__kav(Id)")
        wanted = {key for key, words in texts.items() if {one, two} & words and three not in words}
        assert {row["Id"] for row in rows} == wanted
        starts = await ORG.sosl(f"FIND {{{one[:3]}*}} RETURNING Knowledge__kav(Id)")
        assert {row["Id"] for row in starts} == {
            key for key, words in texts.items() if any(word.startswith(one[:3]) for word in words)
        }


async def test_small_words_neither_find_nor_rule_out():
    plain = await ORG.sosl("FIND {warranty} RETURNING Knowledge__kav(Id)")
    assert plain
    for search in ("what is the warranty", "warranty AND NOT the", "the OR warranty", "(of the) warranty"):
        assert await ORG.sosl(f"FIND {{{search}}} RETURNING Knowledge__kav(Id)") == plain


async def test_a_query_that_takes_too_long_is_stopped(monkeypatch):
    monkeypatch.setattr(limits, "CRM_QUERY_STEPS", 10_000)
    with pytest.raises(QueryError) as caught:
        await ORG.soql("SELECT COUNT() FROM CaseHistory__c WHERE CaseId__r.Account.Name LIKE '%a%e%i%'")
    assert caught.value.code == "QUERY_TIMEOUT"


async def test_a_search_after_a_query_that_took_too_long_is_answered() -> None:
    issues = [{"Id": f"a03{n:06}", "Name": f"Noise {n}"} for n in range(20_000)]
    org = EmbeddedOrg({"Issue__c": issues}, COMPANY.today)
    with pytest.raises(QueryError, match="QUERY_TIMEOUT"):
        await org.soql("SELECT Id FROM Issue__c WHERE " + " OR ".join(["Name LIKE '%x%y%'"] * 40))
    assert await org.sosl("FIND {7007} RETURNING Issue__c(Id)") == [{"Id": "a03007007"}]
    org.close()
