"""Files of JSON lines, read after something else wrote into them."""

from __future__ import annotations

import pytest

from benchmax.errors import RecordError
from benchmax.files.jsonl import read_jsonl


@pytest.mark.parametrize("line", ["{", "[" * 100_000, "\x00"])
def test_a_line_that_is_damaged_is_named(tmp_path, line):
    path = tmp_path / "records.jsonl"
    path.write_text(f'{{"a": 1}}\n{line}\n{{"a": 2}}\n')
    records = read_jsonl(path)
    assert next(records) == {"a": 1}
    with pytest.raises(RecordError, match=r"records\.jsonl:2 is damaged: .* Remove that line"):
        next(records)


def test_an_incomplete_last_line_is_left_out(tmp_path):
    path = tmp_path / "records.jsonl"
    path.write_text('{"a": 1}\n{"a"')
    assert list(read_jsonl(path)) == [{"a": 1}]
