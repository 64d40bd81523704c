"""What a SOQL query is, once it is parsed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True)
class Path:
    """A field, or a field of a related record: `Account.Owner.Name`."""

    parts: tuple[str, ...]

    def __str__(self) -> str:
        return ".".join(self.parts)


@dataclass(frozen=True, slots=True)
class Call:
    """A function of a field: `COUNT(Id)`, `CALENDAR_MONTH(CreatedDate)`; COUNT alone may have no field."""

    function: str
    argument: Path | None = None

    def __str__(self) -> str:
        return f"{self.function}({self.argument or ''})"


Expression: TypeAlias = Path | Call


@dataclass(frozen=True, slots=True)
class Literal:
    """A value as it was written."""

    kind: str
    """`string`, `number`, `boolean`, `null`, `date`, `datetime` or `range`."""
    value: Any
    """A string keeps its escapes, as LIKE reads them in another way; a range is a pair of its name and its number."""


@dataclass(frozen=True, slots=True)
class Comparison:
    left: Expression
    operator: str
    right: Literal


@dataclass(frozen=True, slots=True)
class Membership:
    """`field IN (…)`, of literals or of a query."""

    left: Expression
    within: tuple[Literal, ...] | Select
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Not:
    condition: Condition


@dataclass(frozen=True, slots=True)
class Combined:
    """Conditions joined by one operator, AND or OR."""

    operator: str
    parts: tuple[Condition, ...]


Condition: TypeAlias = Comparison | Membership | Not | Combined


@dataclass(frozen=True, slots=True)
class Selected:
    expression: Expression
    alias: str = ""


@dataclass(frozen=True, slots=True)
class Ordering:
    expression: Expression
    descending: bool = False
    nulls_last: bool = False


@dataclass(frozen=True, slots=True)
class Select:
    """A query of one object."""

    fields: tuple[Selected, ...]
    object: str
    alias: str = ""
    where: Condition | None = None
    group_by: tuple[Expression, ...] = ()
    having: Condition | None = None
    order_by: tuple[Ordering, ...] = ()
    limit: int | None = None
    offset: int = 0
