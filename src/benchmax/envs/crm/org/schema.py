"""The objects that can be queried: their fields, the types of those, and what refers to what.

A line of the table is an object; a field without a type is a text, `Field>Object` refers to a record of another object.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Type(StrEnum):
    """What a field holds, in the words of Salesforce."""

    ID = "id"
    REFERENCE = "reference"
    TEXT = "string"
    LONG_TEXT = "textarea"
    EMAIL = "email"
    PHONE = "phone"
    NUMBER = "double"
    BOOLEAN = "boolean"
    DATE = "date"
    DATETIME = "datetime"


@dataclass(frozen=True, slots=True)
class Field:
    """A field of an object."""

    name: str
    type: Type
    refers: str = ""
    """The object that a reference leads to."""
    relationship: str = ""
    """What a path to the other's fields begins with: `Account` for `AccountId`, `IssueId__r` for `IssueId__c`."""


@dataclass(frozen=True, slots=True)
class SObject:
    """An object and its fields, which are found whatever the case of their names."""

    name: str
    fields: tuple[Field, ...]
    _by_name: dict[str, Field] = field(default_factory=dict, compare=False, repr=False)
    _by_relationship: dict[str, Field] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        self._by_name.update({each.name.lower(): each for each in self.fields})
        self._by_relationship.update({each.relationship.lower(): each for each in self.fields if each.refers})

    def field(self, name: str) -> Field | None:
        return self._by_name.get(name.lower())

    def reference(self, relationship: str) -> Field | None:
        return self._by_relationship.get(relationship.lower())


NAME_FIELDS = frozenset({"Name", "FirstName", "LastName", "Title", "Subject", "CaseNumber", "OrderNumber"})
"""What SOSL searches `IN NAME FIELDS`."""

_TABLE = {
    "User": "Id:id FirstName LastName Name Email:email Department IsActive:boolean",
    "Account": (
        "Id:id Name Industry Phone:phone ShippingCity ShippingState ShippingCountry CreatedDate:datetime"
    ),
    "Contact": "Id:id AccountId>Account FirstName LastName Name Email:email Phone:phone CreatedDate:datetime",
    "Product2": "Id:id Name Description:textarea Family ProductCode IsActive:boolean",
    "Order": "Id:id OrderNumber AccountId>Account Status EffectiveDate:date TotalAmount:double",
    "OrderItem": "Id:id OrderId>Order Product2Id>Product2 Quantity:double UnitPrice:double",
    "Issue__c": "Id:id Name Description__c:textarea",
    "Case": (
        "Id:id CaseNumber Subject Description:textarea Status Priority Origin IsClosed:boolean CreatedDate:datetime "
        "ClosedDate:datetime OwnerId>User AccountId>Account ContactId>Contact IssueId__c>Issue__c "
        "OrderItemId__c>OrderItem"
    ),
    "CaseHistory__c": "Id:id CaseId__c>Case Field__c OldValue__c NewValue__c CreatedDate:datetime",
    "Knowledge__kav": "Id:id Title Summary FAQ_Answer__c:textarea UrlName PublishStatus Language",
    "LiveChatTranscript": (
        "Id:id CaseId>Case AccountId>Account ContactId>Contact OwnerId>User Body:textarea CreatedDate:datetime "
        "EndTime:datetime"
    ),
}  # fmt: skip


def _field(text: str) -> Field:
    name, arrow, refers = text.partition(">")
    if arrow:
        custom = name.endswith("__c")
        relationship = name.removesuffix("__c") + "__r" if custom else name.removesuffix("Id")
        return Field(name, Type.REFERENCE, refers, relationship)
    name, _, kind = text.partition(":")
    return Field(name, Type(kind or "string"))


OBJECTS = {name: SObject(name, tuple(map(_field, fields.split()))) for name, fields in _TABLE.items()}
_BY_NAME = {name.lower(): each for name, each in OBJECTS.items()}


def find_object(name: str) -> SObject | None:
    """The object of a name, whatever its case."""
    return _BY_NAME.get(name.lower())
