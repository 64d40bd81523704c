"""Server-sent events: what is written is read again, in pieces of any size."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from benchmax.net import sse


def read(stream: bytes, size: int = 7) -> list[bytes]:
    async def pieces() -> AsyncIterator[bytes]:
        for at in range(0, len(stream), size):
            yield stream[at : at + size]

    async def found() -> list[bytes]:
        return [data async for data in sse.read_events(pieces())]

    return asyncio.run(found())


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_what_is_written_is_read(size: int) -> None:
    values = [{"text": "a\nb\u2028c"}, ["é"], 3]
    stream = sse.ALIVE.join(sse.event(value) for value in values) + sse.DONE
    *found, last = read(stream, size)
    assert [json.loads(data) for data in found] == values
    assert last == b"[DONE]"


def test_an_event_may_have_an_id() -> None:
    assert sse.encoded_event(b"{}", 12) == b"id: 12\ndata: {}\n\n"
    assert read(sse.encoded_event(b"{}", 12)) == [b"{}"]


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_lines_of_one_event_are_joined(end: bytes) -> None:
    lines = [b": hello", b"", b"event: message", b"data: one", b"data:two", b"data", b"data:  three", b"", b"retry: 5"]
    assert read(end.join([*lines, b"", b""])) == [b"one\ntwo\n\n three"]


def test_an_event_without_data_is_none() -> None:
    assert read(b"id: 1\ndata:\n\nid: 2\n\n\n\n") == []


def test_the_last_event_needs_no_blank_line() -> None:
    assert read(b"data: a\n\ndata: b") == [b"a", b"b"]
    assert read(b"data: a\n\ndata: b\n") == [b"a", b"b"]


def test_other_fields_are_passed_over() -> None:
    assert read(b"database: no\nid: data: no\n\n") == []
