"""Rows of the store as shapes of the wire."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from benchmax.platform.server.services.wire_shapes import shape
from benchmax.platform.store.tables import ApiKey, Event, RolloutRow, User
from benchmax.platform.wire.accounts import KeyInfo, NewKey
from benchmax.platform.wire.corpora import ChunkBody
from benchmax.platform.wire.rollouts import RolloutItem
from benchmax.platform.wire.runs import RunEvent


def test_columns_are_shown_by_the_names_of_the_wire():
    event = Event(id=3, time=1.5, category="alert", kind="loss_spike", message="look", data={"step": 2})
    shown = shape(RunEvent, event).model_dump(by_alias=True)
    assert shown == {"id": 3, "createdAt": "1970-01-01T00:00:01.500000Z", "category": "alert", "type": "loss_spike",
                     "message": "look", "data": {"step": 2}}  # fmt: skip
    row = RolloutRow(id="a", step=1, split="eval", example_id="e", prompt_text="?", sample=0, reward=None,
                     components={"correct": 1.0}, termination="done", ok=True, tokens=1, turns=1, tools=[])  # fmt: skip
    item = shape(RolloutItem, row)
    assert (item.prompt_message_id, item.total_reward, item.rewards) == ("e", None, {"correct": 1.0})


def test_what_is_given_is_shown_in_place_of_the_column():
    key = ApiKey(id="key_1", name="ci", prefix="ab", digest="secret", scopes=["read"], created=0.0, revoked=12.0)
    shown = shape(NewKey, key, revoked=True, key="sk_…")
    assert (shown.revoked, shown.key, shown.expires_at) == (True, "sk_…", None)
    assert "secret" not in shown.model_dump_json()


def test_a_field_without_a_column_must_be_given():
    with pytest.raises(ValidationError, match="prefix"):
        shape(KeyInfo, User(id="usr_1"), revoked=False)


@pytest.mark.parametrize("text", ["\\u0000", "\\\\u0000", 'a "\\u0000" \n'])
def test_a_zero_byte_that_is_only_spelled_out_is_text(text):
    assert ChunkBody(content=text, metadata={text: [text]}).content == text
    with pytest.raises(ValidationError, match="zero bytes"):
        ChunkBody(content=f"{text}\0")
    with pytest.raises(ValidationError, match="zero bytes"):
        ChunkBody(content="", metadata={"a": f"{text}\\\0"})
