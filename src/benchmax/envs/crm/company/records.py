"""The tables of a company, made by a seed.

Only whole numbers are drawn and computed with, so the records are the same on every machine.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from random import Random
from typing import Any

from benchmax.envs.crm.company import words
from benchmax.envs.crm.company.policies import Policy, policies_of
from benchmax.envs.crm.org.base import Row
from benchmax.envs.crm.soql.values import write_time

AGENTS, ACCOUNTS, CONTACTS, ORDERS, CASES = 10, 120, 240, 300, 720
FIRST_DAY, TODAY = date(2021, 1, 1), date(2023, 1, 16)
_LAST_CREATED = date(2022, 12, 31)
_LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz23456789"
_PREFIXES = {
    "User": "005", "Account": "001", "Contact": "003", "Product2": "01t", "Order": "801", "OrderItem": "802",
    "Issue__c": "a03", "Case": "500", "CaseHistory__c": "a04", "Knowledge__kav": "ka0", "LiveChatTranscript": "570",
}  # fmt: skip
CREATED, ASSIGNED, CLOSED = "Case Creation", "Owner Assignment", "Case Closed"


@dataclass
class Company:
    """The records of a company by object, and what tasks need to know of them."""

    seed: int
    policies: list[Policy]
    tables: dict[str, list[Row]] = field(default_factory=lambda: defaultdict(list))
    chats: dict[str, tuple[Policy, str]] = field(default_factory=dict)
    """Cases whose agent quoted a rule: which, and with what value."""
    today: date = TODAY

    @property
    def name(self) -> str:
        """A name that no other seed has."""
        rest, first = divmod(self.seed, len(words.FIRMS))
        number, second = divmod(rest, len(words.COMPANIES))
        return f"{words.FIRMS[first]} {words.COMPANIES[second]}" + (f" {number}" if number else "")

    def table(self, name: str) -> list[Row]:
        return self.tables[name]

    def by_id(self, name: str) -> dict[str, Row]:
        return {row["Id"]: row for row in self.tables[name]}


@lru_cache(maxsize=16)
def company_of(seed: int) -> Company:
    """The company of a seed; made once, and not to be changed."""
    return _Builder(seed).built()


class _Builder:
    """Draws the records one table after the other."""

    def __init__(self, seed: int) -> None:
        self._rng = Random(f"benchmax crm company {seed}")
        self._taken: set[str] = set()
        self._company = Company(seed, policies_of(self._rng))
        self._bought: dict[str, list[tuple[date, Row]]] = defaultdict(list)
        """What each account has bought, and when."""
        self._contacts: dict[str, list[str]] = defaultdict(list)
        self._sold: dict[str, Row] = {}
        """Products by their Ids."""
        self._pace: dict[str, int] = {}
        """How fast agents and states are, in percent of the usual time."""

    def built(self) -> Company:
        self._people()
        self._products()
        self._orders()
        self._cases()
        self._articles()
        self._company.tables = dict(self._company.tables)
        return self._company

    def _add(self, table: str, **values: Any) -> Row:
        row = {"Id": self._id(table), **values}
        self._company.tables[table].append(row)
        return row

    def _id(self, table: str) -> str:
        """An Id like those of Salesforce; no two differ in capitals alone, as answers are compared without them."""
        while True:
            found = _PREFIXES[table] + "".join(self._rng.choices(_LETTERS, k=12))
            if found.lower() not in self._taken:
                self._taken.add(found.lower())
                return found

    def _time(self, day: date) -> datetime:
        """A moment of a working day."""
        return datetime(day.year, day.month, day.day, 8) + timedelta(seconds=self._rng.randrange(1, 9 * 3600))

    # People

    def _people(self) -> None:
        names = self._rng.sample([(a, b) for a in words.FIRST_NAMES for b in words.LAST_NAMES], AGENTS + CONTACTS)
        for first, last in names[:AGENTS]:
            agent = self._add("User", **_person(first, last, "company"), Department="Service", IsActive=True)
            self._pace[agent["Id"]] = self._rng.randrange(60, 160)
        firms = self._rng.sample([f"{a} {b}" for a in words.FIRMS for b in words.TRADES], ACCOUNTS)
        for number, firm in enumerate(firms):
            self._account(firm, number)
        for number, (first, last) in enumerate(names[AGENTS:]):
            self._contact(first, last, self._company.tables["Account"][number % ACCOUNTS])
        self._pace |= {state: self._rng.randrange(70, 140) for state in words.CITIES}

    def _account(self, firm: str, number: int) -> None:
        state = self._rng.choice(list(words.CITIES))
        self._add(
            "Account", Name=firm, Industry=self._rng.choice(words.INDUSTRIES), Phone=f"555-{1000 + number}",
            ShippingCity=words.CITIES[state], ShippingState=state, ShippingCountry="US",
            CreatedDate=write_time(self._time(FIRST_DAY)),
        )  # fmt: skip

    def _contact(self, first: str, last: str, account: Row) -> None:
        domain = account["Name"].lower().replace(" ", "-")
        made = self._add(
            "Contact", AccountId=account["Id"], **_person(first, last, domain),
            Phone=f"555-{self._rng.randrange(2000, 9999)}", CreatedDate=account["CreatedDate"],
        )  # fmt: skip
        self._contacts[account["Id"]].append(made["Id"])

    # Products and orders

    def _products(self) -> None:
        nouns = [(family, noun) for family, noun in words.FAMILIES.items() for _ in range(4)]
        for (family, noun), series in zip(nouns, self._rng.sample(words.SERIES, len(nouns)), strict=True):
            product = self._add(
                "Product2", Name=f"{series} {noun}", Description=f"{noun}, {self._rng.choice(words.TRAITS)}.",
                Family=family, ProductCode=f"{noun[:2].upper()}-{self._rng.randrange(100, 999)}", IsActive=True,
            )  # fmt: skip
            self._sold[product["Id"]] = product
        for name, text in words.ISSUES.items():
            self._add("Issue__c", Name=name, Description__c=text)

    def _orders(self) -> None:
        """Two thirds of the accounts' first orders lie early, so that there is something to complain about."""
        days = (_LAST_CREATED - FIRST_DAY).days
        for number in range(ORDERS):
            account = self._company.tables["Account"][number % ACCOUNTS]
            day = FIRST_DAY + timedelta(self._rng.randrange(60) if number < ACCOUNTS else self._rng.randrange(days))
            self._order(account["Id"], day, "Draft" if number >= ACCOUNTS and number % 6 == 0 else "Activated", number)

    def _order(self, account: str, day: date, status: str, number: int) -> None:
        products = self._rng.sample(self._company.tables["Product2"], self._rng.randrange(1, 4))
        prices = [self._rng.randrange(20, 400) for _ in products]
        order = self._add(
            "Order", OrderNumber=f"{10_000 + number}", AccountId=account, Status=status, EffectiveDate=day.isoformat(),
            TotalAmount=sum(prices),
        )  # fmt: skip
        for product, price in zip(products, prices, strict=True):
            item = self._add("OrderItem", OrderId=order["Id"], Product2Id=product["Id"], Quantity=1, UnitPrice=price)
            if status == "Activated":
                self._bought[account].append((day, item))

    # Cases

    def _cases(self) -> None:
        span = (_LAST_CREATED - FIRST_DAY).days - 60
        days = sorted(FIRST_DAY + timedelta(60 + self._rng.randrange(span)) for _ in range(CASES))
        for number, day in enumerate(days):
            self._case(number, day)

    def _case(self, number: int, day: date) -> None:
        account = self._rng.choice(self._company.tables["Account"])
        item = self._rng.choice([item for bought, item in self._bought[account["Id"]] if bought <= day])
        product = self._sold[item["Product2Id"]]
        issue = self._issue_of(product)
        count = self._rng.choice((1, 1, 1, 1, 1, 1, 1, 2, 2, 3))
        owners = [agent["Id"] for agent in self._rng.sample(self._company.tables["User"], count)]
        created = self._time(day)
        pace = self._pace[owners[-1]] * self._pace[account["ShippingState"]]
        minutes = 20 + self._rng.randrange(60, 4_000) * pace // 10_000
        closed = created + timedelta(minutes=minutes, seconds=self._rng.randrange(60))
        is_closed = self._rng.randrange(100) < 92
        status = "Closed" if is_closed else self._rng.choice(["New", "Working"])
        case = self._add(
            "Case", CaseNumber=f"{20_000 + number}", Subject=f"{product['Name']}: {issue['Name'].lower()}",
            Description=issue["Description__c"], Status=status, Priority=self._rng.choice(words.PRIORITIES),
            Origin=self._rng.choice(words.ORIGINS), IsClosed=is_closed, CreatedDate=write_time(created),
            ClosedDate=write_time(closed) if is_closed else None, OwnerId=owners[-1], AccountId=account["Id"],
            ContactId=self._rng.choice(self._contacts[account["Id"]]), IssueId__c=issue["Id"],
            OrderItemId__c=item["Id"],
        )  # fmt: skip
        self._history(case, owners, created, closed)
        self._chat(case, product, closed)

    def _issue_of(self, product: Row) -> Row:
        """Each product has an issue of its own, which it has more often than others."""
        issues = self._company.tables["Issue__c"]
        usual = int.from_bytes(product["Id"].encode()[-3:], "big") % len(issues)
        return issues[usual] if self._rng.randrange(100) < 35 else self._rng.choice(issues)

    def _history(self, case: Row, owners: list[str], created: datetime, closed: datetime) -> None:
        self._note(case, CREATED, None, None, created)
        moment = created + timedelta(seconds=self._rng.randrange(30, 600))
        self._note(case, ASSIGNED, None, owners[0], moment)
        for old, new in pairwise(owners):
            moment += timedelta(seconds=self._rng.randrange(60, 300))
            self._note(case, ASSIGNED, old, new, moment)
        if case["IsClosed"]:
            self._note(case, CLOSED, None, None, closed)

    def _note(self, case: Row, what: str, old: str | None, new: str | None, moment: datetime) -> None:
        self._add(
            "CaseHistory__c", CaseId__c=case["Id"], Field__c=what, OldValue__c=old, NewValue__c=new,
            CreatedDate=write_time(moment),
        )  # fmt: skip

    # What was said and written

    def _chat(self, case: Row, product: Row, closed: datetime) -> None:
        """Two cases in three have a chat; in most of them the agent quotes a rule, in a third of those wrongly."""
        if self._rng.randrange(3) == 0:
            return
        noun = words.FAMILIES[product["Family"]].lower()
        lines = [
            f"Customer: Hello, {case['Description'].lower()} It is about my {noun}.",
            "Agent: I am sorry to hear that.",
        ]
        if self._rng.randrange(4):
            policy = self._rng.choice([each for each in self._company.policies if each.family == product["Family"]])
            others = [value for value in policy.topic.values if value != policy.value]
            value = self._rng.choice(others) if self._rng.randrange(3) == 0 else policy.value
            self._company.chats[case["Id"]] = (policy, value)
            lines += [f"Customer: {policy.asked}", f"Agent: {policy.rule(value)}"]
        lines += ["Customer: Thank you.", "Agent: You are welcome."]
        self._add(
            "LiveChatTranscript", CaseId=case["Id"], AccountId=case["AccountId"], ContactId=case["ContactId"],
            OwnerId=case["OwnerId"], Body="\n".join(lines), CreatedDate=case["CreatedDate"],
            EndTime=write_time(closed - timedelta(minutes=5)),
        )  # fmt: skip

    def _articles(self) -> None:
        """Every policy online, and of some an old draft or a translation with another value beside it."""
        for number, policy in enumerate(self._company.policies):
            self._article(policy, policy.article, "Online", "en_US")
            if number % 3 == 0:
                value = next(each for each in policy.topic.values if each != policy.value)
                state = ("Draft", "en_US") if number % 2 else ("Online", "de")
                self._article(policy, policy.rule(value), *state)

    def _article(self, policy: Policy, text: str, status: str, language: str) -> None:
        self._add(
            "Knowledge__kav", Title=policy.title, Summary=f"What applies to {policy.family.lower()}.",
            FAQ_Answer__c=text, UrlName=policy.title.lower().replace(": ", "-").replace(" ", "-"),
            PublishStatus=status, Language=language,
        )  # fmt: skip


def _person(first: str, last: str, domain: str) -> Row:
    email = f"{first}.{last}@{domain}.example".lower()
    return {"FirstName": first, "LastName": last, "Name": f"{first} {last}", "Email": email}
