"""Rows of text files: JSONL, JSON, CSV and TSV, plain or gzipped.

Covered: UTF-8 with or without byte order mark, UTF-16 with one, all three line ends, blank lines, lines of any
length (those over the limit are skipped unread). Not covered: other encodings; guessing one would change text.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, TextIO, cast

from benchmax import limits
from benchmax.envs.datasets.rows import (
    EXCERPT_CHARS,
    Complaint,
    Row,
    RowFault,
    deeper,
    json_type,
    too_deep,
    too_large,
    utf8_size,
)
from benchmax.errors import DatasetError

JSON_FILE_BYTES = 256 * limits.MIB
"""A .json file is read whole, so it is bounded; .jsonl is not."""
JSON_COLUMNS = frozenset({"messages", "prompt_messages", "init_rollout_args", "task"})
"""Columns whose CSV cells hold JSON."""

_ONE_LINE = "write one whole JSON object on each line"
_SAVE_UTF8 = "save the file as UTF-8"
_LIST_KEYS = ("data", "rows", "examples")


def jsonl_rows(path: Path) -> Iterator[Row]:
    """One object a line; blank lines do not count."""
    with _opened(path) as text:
        yield from _jsonl(text, str(path))


def _jsonl(text: TextIO, name: str) -> Iterator[Row]:
    lines, read, seen = _Lines(text), _Json().row, False
    for number, line in _records(lines, lines):
        if isinstance(line, Complaint):
            yield _broken(name, number, line)
        elif line.isspace():
            continue
        elif not seen and line.lstrip().startswith("["):
            yield _broken(name, number, Complaint(None, "the file is one JSON list, not lines", "rename it to .json"))
            return
        else:
            yield _row(name, number, read, line.rstrip())
        seen = True


def _row(name: str, number: int, read: Callable[[Any], Any], record: Any) -> Row:
    """The row that `read` makes of a record, or why there is none."""
    try:
        return Row(read(record), name, number, True)
    except RowFault as fault:
        return _broken(name, number, fault.complaint)


def json_rows(path: Path) -> Iterator[Row]:
    """A list of objects, or an object with that list under `data`, `rows` or `examples`; JSONL is recognised."""
    name = str(path)
    with _opened(path) as text:
        if _is_jsonl(text):
            yield from _jsonl(text, name)
            return
        whole = text.read(JSON_FILE_BYTES + 1)
    if len(whole) > JSON_FILE_BYTES:
        raise DatasetError(
            f"{name} is larger than {JSON_FILE_BYTES // limits.MIB} MiB, too large for one JSON document. "
            "Write it as .jsonl, one object on each line; that has no limit."
        )
    parse = _Json("file", "write the file as JSON, as json.dump does")
    try:
        if damage := text_fault(whole):
            raise RowFault(damage)
        rows = _row_list(parse.document(whole))
    except RowFault as fault:
        yield _broken_document(name, whole, fault.complaint)
        return
    del whole
    for number, data in enumerate(rows, 1):
        try:
            parse.refuse_odd_numbers(data)
            yield Row(data, name, number)
        except RowFault as fault:
            yield _broken(name, number, fault.complaint)


def _is_jsonl(text: TextIO) -> bool:
    """Whether the first line is a whole object and another follows; the text is then at its start again."""
    lines = _full_lines(text)
    first, second = next(lines, ""), next(lines, "")
    text.seek(0)
    if not first.startswith("{") or not second.startswith("{"):
        return False
    try:
        return isinstance(_Json().document(first), dict)
    except RowFault:
        return False


def _full_lines(text: TextIO) -> Iterator[str]:
    return (line for line in iter(lambda: text.readline(limits.ROW_BYTES), "") if not line.isspace())


def _row_list(document: Any) -> list[Any]:
    if isinstance(document, dict):
        lists = [document[key] for key in _LIST_KEYS if isinstance(document.get(key), list)]
        document = lists[0] if len(lists) == 1 else document
    if not isinstance(document, list):
        raise RowFault(
            Complaint(None, f"the file is {json_type(document)}, not a list of rows", "write [{…}, {…}] or .jsonl")
        )
    return document


def _broken_document(name: str, text: str, complaint: Complaint) -> Row:
    """The fault of a whole file, moved to its line."""
    column = complaint.column or ""
    at = int(column.removeprefix("char ")) - 1 if column.startswith("char ") else 0
    start = text.rfind("\n", 0, at) + 1
    where = f"char {at - start + 1}" if column else None
    moved = complaint._replace(column=where, excerpt=_excerpt(text, start))
    return _broken(name, text.count("\n", 0, at) + 1, moved)


def _broken(source: str, number: int, complaint: Complaint) -> Row:
    return Row(None, source, number, True, complaint)


# CSV


def csv_rows(path: Path) -> Iterator[Row]:
    """A header line, then one row for each record."""
    # The csv module's own bound of 128 KiB a cell is below our row limit; it is process-wide, so only ever raised.
    csv.field_size_limit(max(csv.field_size_limit(), limits.ROW_BYTES))
    name, parse = str(path), _Json("cell", "write the cell as JSON, as json.dumps does")
    with _opened(path) as text:
        lines = _Lines(text)
        records = csv.reader(lines, strict=True, delimiter=_delimiter(path, text))
        header: list[str] | None = None
        for number, cells in _records(lines, records):
            if isinstance(cells, Complaint):
                yield _broken(name, number, cells)
                if header is None:
                    return
            elif header is None:
                header = _header(name, cells) if cells else None
                read = partial(_csv_data, header or [], parse)
            elif cells and not (len(cells) == 1 < len(header) and cells[0].isspace()):
                yield _row(name, number, read, cells)


def _delimiter(path: Path, text: TextIO) -> str:
    """The delimiter: a tab for .tsv, a comma for .csv, or what the header has in place of commas."""
    if ".tsv" in map(str.lower, path.suffixes):
        return "\t"
    header = next(_full_lines(text), "")
    text.seek(0)
    return "," if "," in header else next((other for other in ";\t" if other in header), ",")


def _header(name: str, cells: list[str]) -> list[str]:
    header = [cell.strip() for cell in cells]
    twice = sorted({column for column in header if header.count(column) > 1})
    if twice:
        raise DatasetError(f"{name} has the column {', '.join(map(repr, twice))} more than once. Rename one of them.")
    return header


def _csv_data(header: list[str], parse: _Json, cells: list[str]) -> dict[str, Any]:
    if len(cells) != len(header):
        reason = f"the row has {len(cells)} cells, the header has {len(header)}"
        raise RowFault(Complaint(None, reason, 'put cells with commas or line ends in "…"'))
    data = {}
    for column, cell in zip(header, cells, strict=True):
        if column not in JSON_COLUMNS:
            data[column] = cell
        elif cell.strip():  # an empty cell of these is a column the row does not have
            data[column] = _json_cell(column, cell, parse)
    return data


def _json_cell(column: str, cell: str, parse: _Json) -> Any:
    if cell.lstrip()[0] not in "[{":
        return cell
    try:
        return parse.row(cell)
    except RowFault as fault:
        found = fault.complaint
        reason = f"{found.reason} (at {found.column})" if found.column else found.reason
        raise RowFault(found._replace(column=column, reason=reason)) from None


# Text


@contextmanager
def _opened(path: Path) -> Iterator[TextIO]:
    """The file as text. Bytes that are no text become lone surrogates, which `_Lines` reports."""
    packed = path.suffix.lower() == ".gz"
    with cast("BinaryIO", gzip.open(path, "rb") if packed else open(path, "rb")) as raw:
        start = cast("io.BufferedReader", raw).peek(4)[:4]
        wide = start[:2] in (b"\xff\xfe", b"\xfe\xff")
        encoding, errors = ("utf-16", "surrogatepass") if wide else ("utf-8-sig", "surrogateescape")
        with io.TextIOWrapper(raw, encoding, errors, newline="") as text:
            yield text


class _Lines:
    """The lines of a text, numbered as an editor does; those of one record are no longer than a row may be."""

    def __init__(self, text: TextIO) -> None:
        self._readline = text.readline
        self.number = 0
        self._size = 0
        self.fault: Complaint | None = None
        """What is wrong with the text of this record."""

    def __iter__(self) -> _Lines:
        return self

    def new_record(self) -> None:
        self._size, self.fault = 0, None

    def __next__(self) -> str:
        line = self._readline(limits.ROW_BYTES + len("\r\n"))
        if not line:
            raise StopIteration
        self.number += 1
        self._size += utf8_size(line)
        line_end = len(line) - len(line.rstrip("\r\n"))
        if self._size - line_end > limits.ROW_BYTES:
            self._skip_rest(line)
            raise RowFault(too_large()._replace(excerpt=_excerpt(line)))
        if not line.isascii() or "\0" in line:
            self.fault = self.fault or text_fault(line)
        return line

    def _skip_rest(self, part: str) -> None:
        while part and part[-1] not in "\r\n":
            part = self._readline(limits.ROW_BYTES)


def _excerpt(text: str, start: int = 0) -> str:
    return text[start : start + EXCERPT_CHARS].strip().encode("utf-8", "replace").decode()


def text_fault(text: str) -> Complaint | None:
    """Why a text read by `_opened` is unusable, or None."""
    excerpt = _excerpt(text)
    if (at := text.find("\0")) >= 0:
        return Complaint(f"char {at + 1}", "a NUL byte", f"{_SAVE_UTF8}, without NUL bytes", excerpt=excerpt)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return Complaint(
            f"char {error.start + 1}", "bytes that are neither UTF-8 nor UTF-16 text", _SAVE_UTF8, excerpt=excerpt
        )
    return None


def _records(lines: _Lines, records: Iterator[Any]) -> Iterator[tuple[int, Any]]:
    """(line number, record or Complaint) for each record that a parser makes of `lines`."""
    while True:
        start = lines.number + 1
        lines.new_record()
        try:
            record = next(records)
        except StopIteration:
            return
        except RowFault as fault:
            yield start, fault.complaint
        except csv.Error as error:
            yield start, Complaint(None, f"not CSV: {error}", 'quote cells as "…" and write " inside them as ""')
        else:
            yield start, lines.fault or record


# JSON


class _Json:
    """Reads JSON strictly: a number that JSON or a float cannot hold is refused, with its column.

    `what` holds it, for messages, and `fix` says how to write that.
    """

    def __init__(self, what: str = "line", fix: str = _ONE_LINE) -> None:
        self._what, self._fix = what, fix
        self._odd_numbers: list[str] = []
        self._decode = json.JSONDecoder(parse_float=self._float, parse_constant=self._constant).decode

    def _float(self, text: str) -> float:
        value = float(text)
        if math.isinf(value):
            self._odd_numbers.append(text)
        return value

    def _constant(self, text: str) -> float:
        self._odd_numbers.append(text)
        return float(text)

    def row(self, text: str) -> Any:
        """One row, or one cell of a row."""
        value = self.document(text)
        # Only a text with more brackets than levels allowed can be too deep.
        if text.count("[") + text.count("{") > limits.JSON_DEPTH and deeper(value, limits.JSON_DEPTH):
            raise RowFault(too_deep()._replace(excerpt=_excerpt(text)))
        self.refuse_odd_numbers(value)
        return value

    def document(self, text: str) -> Any:
        """A whole file; call `refuse_odd_numbers` on its parts."""
        self._odd_numbers.clear()
        try:
            return self._decode(text)
        except json.JSONDecodeError as error:
            raise RowFault(self._syntax(text, error)) from None
        except RecursionError:
            raise RowFault(too_deep()._replace(excerpt=_excerpt(text))) from None
        except ValueError:  # Python's own bound on the digits of an int
            raise RowFault(Complaint(None, "a number has too many digits", "write it as text")) from None

    def _syntax(self, text: str, error: json.JSONDecodeError) -> Complaint:
        cut = error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated")
        reason = f"the {self._what} ends in the middle of its JSON" if cut else f"not JSON: {error.msg}"
        return Complaint(f"char {error.pos + 1}", reason, self._fix, excerpt=_excerpt(text))

    def refuse_odd_numbers(self, value: Any) -> None:
        """Raise RowFault if `value` holds a number of the text that JSON cannot hold."""
        if self._odd_numbers and (found := _not_finite(value)):
            path, number = found
            text = next(text for text in self._odd_numbers if str(float(text)) == str(number))
            reason = f"is {text[:40]}, which is not a number JSON can carry"
            raise RowFault(Complaint(path, reason, "write null or a finite number"))


def _not_finite(value: Any) -> tuple[str | None, float] | None:
    """Where a NaN or an infinity is, and which."""
    stack: list[tuple[str, Any]] = [("", value)]
    while stack:
        path, item = stack.pop()
        if isinstance(item, dict):
            stack += [(f"{path}.{key}", inner) for key, inner in item.items()]
        elif isinstance(item, list):
            stack += [(f"{path}[{index}]", inner) for index, inner in enumerate(item)]
        elif isinstance(item, float) and not math.isfinite(item):
            return path.removeprefix(".") or None, item
    return None
