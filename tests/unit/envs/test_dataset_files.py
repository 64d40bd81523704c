"""Dataset files: every format gives the same examples, every damage names its place."""

from __future__ import annotations

import csv
import gzip
import json
import random
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmax import limits
from benchmax.envs.base_env import BaseEnv
from benchmax.envs.datasets import check_dataset, load_examples, text_readers, write_jsonl
from benchmax.envs.datasets.readers import read_rows
from benchmax.errors import DatasetError, NotFoundError

ROWS = [
    {"prompt": "what is 2+2?", "ground_truth": "4"},
    {"prompt": 'say "hi", in\ntwo\r\nor\rthree lines — é 漢 😀', "ground_truth": "x"},
    {"prompt": "third", "ground_truth": ""},
]
CHATS = [
    {
        "messages": [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "search, please"},
            {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "name": "f", "arguments": "{}"}]},
            {"role": "tool", "tool_call_id": "c", "name": "f", "content": "[1, 2]"},
            {"role": "user", "content": "sum up"},
        ],
        "init_rollout_args": {"path": "/data/é.xlsx", "sheet": 2},
        "ground_truth": "3",
    },
    {
        "messages": [{"role": "user", "content": "second"}],
        "init_rollout_args": {"path": "b", "sheet": 1},
        "ground_truth": "4",
    },
]


def ids(source, **kwargs):
    return [example["id"] for example in load_examples(source, **kwargs)]


def save(folder, name, content):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def save_csv(folder, rows, name="rows.csv", delimiter=","):
    path = folder / name
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter=delimiter)
        writer.writeheader()
        for row in rows:
            writer.writerow({k: v if isinstance(v, str) else json.dumps(v) for k, v in row.items()})
    return path


def test_values_of_a_parquet_file_that_cannot_be_read(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet

    far = pa.array([2**50], type=pa.timestamp("s"))
    pyarrow.parquet.write_table(pa.table({"prompt": ["x"], "when": far}), tmp_path / "far.parquet")
    with pytest.raises(DatasetError, match=r"far\.parquet has values that cannot be read: .*\. Write it again, dates"):
        check_dataset(tmp_path / "far.parquet")

    path = save_parquet(tmp_path, [{"prompt": f"row {number} " * 20} for number in range(5_000)])
    whole = path.read_bytes()
    for at in range(4, len(whole) - 8, 1_009):
        path.write_bytes(whole[:at] + bytes(byte ^ 255 for byte in whole[at : at + 8]) + whole[at + 8 :])
        with suppress(DatasetError):
            check_dataset(path)


def save_parquet(folder, rows):
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), folder / "rows.parquet")
    return folder / "rows.parquet"


def issue_texts(path, **kwargs):
    return [str(issue).replace(str(path), path.name) for issue in check_dataset(path, **kwargs).issues]


# Formats


FORMATS = {
    "generator": lambda folder, rows: (row for row in rows),
    "jsonl": lambda folder, rows: save(folder, "a.jsonl", "\n".join(map(json.dumps, rows))),
    "ndjson": lambda folder, rows: save(folder, "a.ndjson", "".join(json.dumps(row) + "\n" for row in rows)),
    "raw utf-8": lambda folder, rows: save(
        folder, "a.jsonl", "\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    ),
    "json": lambda folder, rows: str(save(folder, "a.json", json.dumps(rows, indent=2))),
    "json with data": lambda folder, rows: save(folder, "a.json", json.dumps({"version": 1, "data": rows})),
    "json lines": lambda folder, rows: save(folder, "a.json", "\n".join(map(json.dumps, rows))),
    "csv": save_csv,
    "csv with semicolons": lambda folder, rows: save_csv(folder, rows, delimiter=";"),
    "tsv": lambda folder, rows: save_csv(folder, rows, "rows.tsv", "\t"),
    "parquet": save_parquet,
    "jsonl.gz": lambda folder, rows: save(
        folder, "a.jsonl.gz", gzip.compress("\n".join(map(json.dumps, rows)).encode())
    ),
    "CSV.GZ": lambda folder, rows: save(folder, "a.CSV.GZ", gzip.compress(save_csv(folder, rows).read_bytes())),
}


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("name", ["rows", "chats"])
def test_every_format_gives_the_same_ids(form, name, tmp_path):
    rows = {"rows": ROWS, "chats": CHATS}[name]
    if form == "csv with semicolons":
        rows = [{"prompt": "a, b; c", "ground_truth": "d"}, {"prompt": "e", "ground_truth": "f"}]
    source = FORMATS[form](tmp_path, rows)
    loaded = load_examples(source)
    assert [example["id"] for example in loaded] == ids(rows)
    assert (loaded.report.rows, loaded.report.kept, loaded.report.issues) == (len(rows), len(rows), [])


def test_the_documented_row_has_its_published_id(tmp_path):
    assert ids(save_csv(tmp_path, ROWS))[0] == "59625b5946ab8710fbf4b7e6ebe68162cab237345c4be5c20ecc2c71bcb102f1"


@pytest.mark.filterwarnings("ignore")
def test_hugging_face_datasets(tmp_path):
    import datasets

    rows = datasets.Dataset.from_list(ROWS)
    assert ids(rows) == ids(ROWS)
    assert ids(datasets.DatasetDict(train=rows)) == ids(ROWS)
    with pytest.raises(DatasetError, match=r"splits train, test. Give one: dataset\['train'\]"):
        load_examples(datasets.DatasetDict(train=rows, test=rows))


ENCODINGS = {
    "byte order mark": lambda text: b"\xef\xbb\xbf" + text.encode(),
    "crlf": lambda text: text.replace("\n", "\r\n").encode(),
    "old mac": lambda text: text.replace("\n", "\r").encode(),
    "mixed ends": lambda text: text.replace("\n", "\r\n", 1).encode() + b"\r",
    "utf-16": lambda text: text.encode("utf-16"),
    "utf-16 big": lambda text: b"\xfe\xff" + text.encode("utf-16-be"),
    "blank lines": lambda text: ("\n\n" + text.replace("\n", "\n \t\n") + "\n\n").encode(),
}


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_encodings_and_line_ends(encoding, tmp_path):
    text = "\n".join(json.dumps(row, ensure_ascii=False) for row in ROWS)
    assert ids(save(tmp_path, "a.jsonl", ENCODINGS[encoding](text))) == ids(ROWS)
    assert ids(save(tmp_path, "a.json", ENCODINGS[encoding](json.dumps(ROWS, indent=1, ensure_ascii=False)))) == ids(
        ROWS
    )
    plain = [{"prompt": "é 1", "ground_truth": "a"}, {"prompt": "漢", "ground_truth": "b"}]
    table = "prompt,ground_truth\né 1,a\n漢,b"
    assert ids(save(tmp_path, "a.csv", ENCODINGS[encoding](table))) == ids(plain)


# Damage


GOOD = '{"prompt": "a"}\n'
ONE_LINE = "write one whole JSON object on each line"
CUT = f"the line ends in the middle of its JSON → {ONE_LINE}"
NO_NUL = "a NUL byte → save the file as UTF-8, without NUL bytes"
CELLS = 'put cells with commas or line ends in "…"'
NOT_TEXT = "bytes that are neither UTF-8 nor UTF-16 text → save the file as UTF-8"
DAMAGED_LINES = {
    "truncated": (
        b'{"prompt": "what is',
        f'char 12: {CUT} | {{"prompt": "what is',
    ),
    "pretty": (
        b"{",
        f"char 2: {CUT} | {{",
    ),
    "not json": (b"hello there", f"char 1: not JSON: Expecting value → {ONE_LINE} | hello there"),
    "two on a line": (
        b'{"prompt": "a"} {"prompt": "b"}',
        f'char 17: not JSON: Extra data → {ONE_LINE} | {{"prompt": "a"}} {{"prompt": "b"}}',
    ),
    "latin-1": (b'{"prompt": "caf\xe9"}', "char 16: " + NOT_TEXT + ' | {"prompt": "caf?"}'),
    "encoded surrogate": (b'{"prompt": "\xed\xa0\x80"}', "char 13: " + NOT_TEXT + ' | {"prompt": "???"}'),
    "NUL": (b'{"prompt": "a\0b"}', "char 14: " + NO_NUL + ' | {"prompt": "a\\x00b"}'),
    "escaped surrogate": (
        b'{"prompt": "\\ud800"}',
        "prompt: holds half of a surrogate pair, which is no character → remove it or write the whole character",
    ),
    "a list": (b'["a"]', 'the row is a list, not an object → write {"prompt": "…", "ground_truth": "…"}'),
    "a number": (b"5", 'the row is a number, not an object → write {"prompt": "…", "ground_truth": "…"}'),
    "NaN": (
        b'{"prompt": "a", "x": {"y": NaN}}',
        "x.y: is NaN, which is not a number JSON can carry → write null or a finite number",
    ),
    "Infinity": (
        b'{"prompt": "a", "x": [-Infinity]}',
        "x[0]: is -Infinity, which is not a number JSON can carry → write null or a finite number",
    ),
    "1e400": (
        b'{"prompt": "a", "x": 1e400}',
        "x: is 1e400, which is not a number JSON can carry → write null or a finite number",
    ),
    "2^80": (
        b'{"prompt": "a", "x": 1208925819614629174706176}',
        "x: is an integer beyond 2^53-1, which JSON readers round → write it as text",
    ),
    "5000 digits": (b'{"prompt": "a", "x": ' + b"1" * 5000 + b"}", "a number has too many digits → write it as text"),
    "deep": (
        b'{"x": ' + b"[" * 100 + b"]" * 100 + b"}",
        "the row is nested deeper than 64 levels → flatten it | " + '{"x": ' + "[" * 74,
    ),
    "very deep": (
        b'{"x": ' + b"[" * 10_000 + b"]" * 10_000 + b"}",
        "the row is nested deeper than 64 levels → flatten it | " + '{"x": ' + "[" * 74,
    ),
    "too long": (
        b'{"prompt": "' + b"x" * limits.ROW_BYTES + b'"}',
        "the row is larger, the limit is 2,097,152 bytes → shorten it or store files apart | "
        + '{"prompt": "'
        + "x" * 68,
    ),
}


@pytest.mark.parametrize("case", DAMAGED_LINES)
def test_a_damaged_line_names_its_place_and_leaves_the_others(case, tmp_path):
    line, text = DAMAGED_LINES[case]
    path = save(tmp_path, "a.jsonl", GOOD.encode() + b"\n" + line + b"\n" + b'{"prompt": "b"}')
    assert issue_texts(path) == [f"a.jsonl:3: {text}"]
    assert [e["task"]["prompt"] for e in load_examples(path, lenient=True)] == ["a", "b"]
    with pytest.raises(DatasetError, match="1 of 3 rows") as refused:
        load_examples(path)
    assert refused.value.issues[0].row == 3


def test_minus_zero_duplicate_keys_and_exact_integers_are_read(tmp_path):
    path = save(tmp_path, "a.jsonl", '{"prompt": "x", "prompt": "a", "z": -0.0, "n": 9007199254740991}')
    (example,) = load_examples(path)
    assert example["task"] == {"prompt": "a", "z": 0, "n": 9007199254740991}


def test_big_integers_reach_an_environment_unchanged(tmp_path):
    class Big(BaseEnv):
        @classmethod
        def dataset_preprocess(cls, example, **kwargs):
            return super().dataset_preprocess({"prompt": str(example["n"])})

    path = save(tmp_path, "a.jsonl", '{"n": 1208925819614629174706176}')
    assert load_examples(path, Big)[0]["prompt_messages"][0]["content"] == str(2**80)


def test_numbers_that_become_infinite_never_reach_an_environment(tmp_path):
    class Any(BaseEnv):
        @classmethod
        def dataset_preprocess(cls, example, **kwargs):
            return super().dataset_preprocess({"prompt": str(example["n"])})

    content = '[{"n": [1208925819614629174706176, -1e999, NaN]}, {"n": 1208925819614629174706176}]'
    report = check_dataset(save(tmp_path, "a.json", content), Any, lenient=True)
    assert [(issue.row, issue.column) for issue in report.issues] == [(1, "n[2]")]
    assert report.kept == 1


def test_a_list_named_jsonl_is_one_issue(tmp_path):
    path = save(tmp_path, "a.jsonl", json.dumps(ROWS, indent=2))
    assert issue_texts(path) == ["a.jsonl:1: the file is one JSON list, not lines → rename it to .json"]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (
            '[\n {"prompt": "a"},\n {"prompt": }\n]',
            "a.json:3: char 13: not JSON: Expecting value → write the file as JSON",
        ),
        ('[{"prompt": "a"},', "a.json:1: char 18: the file ends in the middle of its JSON → write the file as JSON"),
        ('{"prompt": "a"}', "a.json:1: the file is an object, not a list of rows → write [{…}, {…}] or .jsonl"),
        ('[{"prompt": "a"}, {"prompt": "b", "x": NaN}]', "a.json:2: x: is NaN, which is not a number JSON can carry"),
        (b'[\n{"prompt": "caf\xe9"}]', "a.json:2: char 16: bytes that are neither UTF-8 nor UTF-16 text"),
        ("[" * 10_000 + "]" * 10_000, "a.json:1: the row is nested deeper than 64 levels → flatten it"),
        (
            json.dumps([{"prompt": "a", "x": json.loads("[" * 70 + "]" * 70)}]),
            "a.json:1: the row is nested deeper than",
        ),
        (json.dumps([{"prompt": "x" * limits.ROW_BYTES}]), "a.json:1: the row is 2,097,158 bytes, the limit is"),
    ],
)
def test_damaged_json_names_its_place(content, text, tmp_path):
    (issue,) = issue_texts(save(tmp_path, "a.json", content))
    assert issue.startswith(text)


def test_json_files_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(text_readers, "JSON_FILE_BYTES", limits.MIB)
    path = save(tmp_path, "a.json", json.dumps([{"prompt": "x" * 1000}] * 2000))
    with pytest.raises(DatasetError, match=r"larger than 1 MiB.*\n?.*Write it as .jsonl"):
        check_dataset(path)
    lines = save(tmp_path, "b.json", (json.dumps({"prompt": "x" * 1000}) + "\n") * 2000)
    assert check_dataset(lines).rows == 2000


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("prompt,b\na,1\nb\n", "a.csv:3: the row has 1 cells, the header has 2 → " + CELLS),
        ("a,prompt,c\nx,y,z\n ,y\n", "a.csv:3: the row has 2 cells, the header has 3"),
        ("prompt,b\na,1,2\nb,2\n", "a.csv:2: the row has 3 cells, the header has 2 → " + CELLS),
        ('prompt,b\n"a\nb",1\n"c"d,2\ne,3\n', "a.csv:4: not CSV: ',' expected after '\"' → quote cells as"),
        ('prompt,b\na,1\n"b,2\n', "a.csv:3: not CSV: unexpected end of data → quote cells as"),
        (b"prompt,b\na,1\ncaf\xe9,2\n", "a.csv:3: char 4: " + NOT_TEXT),
        (b"prompt,b\na,1\nx\0,2\n", f"a.csv:3: char 2: {NO_NUL} | x\\x00,2"),
        ('messages\n"[{""role"": "\n', "a.csv:2: messages: the cell ends in the middle of its JSON (at char 11)"),
        ('prompt,task\na,"{""x"": NaN}"\n', "a.csv:2: task: is NaN, which is not a number JSON can carry (at x)"),
        ("messages\nhello\n", 'a.csv:2: messages: is text, not a list → write [{"role": "user", "content": "…"}]'),
        ("prompt,b\n,1\n", "a.csv:2: prompt: is empty → write what the model is asked"),
        ("prompt\n" + "x" * (limits.ROW_BYTES + 5) + "\nb\n", "a.csv:2: the row is larger, the limit is"),
    ],
)
def test_damaged_csv_names_its_place(content, text, tmp_path):
    (issue,) = issue_texts(save(tmp_path, "a.csv", content))
    assert issue.startswith(text)


def test_csv_cells_may_be_large_and_json_cells_empty(tmp_path):
    big = "x" * 500_000
    path = save(tmp_path, "a.csv", f'prompt,messages,init_rollout_args\n{big},,"{{""a"": 1}}"\nb,,\n')
    loaded = load_examples(path)
    assert loaded[0]["task"] == {"prompt": big, "init_rollout_args": {"a": 1}}
    assert loaded[0]["init_rollout_args"] == {"a": 1}
    assert loaded[1]["task"] == {"prompt": "b"}


def test_an_open_quote_costs_rows_but_not_the_file(tmp_path):
    body = "".join(f"question {i},{i}\n" for i in range(120_000))
    path = save(tmp_path, "a.csv", 'prompt,b\n"open,0\n' + body)
    report = check_dataset(path, lenient=True)
    assert [(issue.row, issue.reason) for issue in report.issues] == [
        (2, "the row is larger, the limit is 2,097,152 bytes")
    ]
    assert 0 < report.kept < 120_000
    assert report.ok


def test_row_size_is_in_bytes(tmp_path):
    wide = {"prompt": "漢" * (limits.ROW_BYTES // 3)}
    path = save(tmp_path, "a.jsonl", json.dumps(wide, ensure_ascii=False))
    assert "the limit is 2,097,152 bytes" in issue_texts(path)[0]
    assert "the limit is 2,097,152 bytes" in str(check_dataset([wide]).issues[0])


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_the_end_of_a_line_is_no_part_of_its_row(end, tmp_path):
    frame = len(json.dumps({"prompt": ""}))
    fits, long = (json.dumps({"prompt": "x" * (limits.ROW_BYTES - frame + more)}) for more in (0, 1))
    good = save(tmp_path, "a.jsonl", f"{fits}\n{fits}{end}")
    assert (check_dataset(good).kept, len(fits)) == (2, limits.ROW_BYTES)
    bad = issue_texts(save(tmp_path, "b.jsonl", f"{long}{end}"))
    assert len(bad) == 1
    assert bad[0].startswith("b.jsonl:1: the row is larger, the limit is 2,097,152 bytes")


def test_csv_columns_named_twice_are_refused(tmp_path):
    with pytest.raises(DatasetError, match=r"has the column 'a' more than once. Rename one"):
        check_dataset(save(tmp_path, "x.csv", "prompt,a,a\n1,2,3\n"))


def test_cut_gzip_keeps_what_was_read(tmp_path):
    noise = random.Random(0)
    rows = (json.dumps({"prompt": noise.randbytes(60).hex()}) + "\n" for _ in range(2000))
    packed = gzip.compress("".join(rows).encode())
    path = save(tmp_path, "a.jsonl.gz", packed[: len(packed) // 2])
    report = check_dataset(path, lenient=True)
    assert report.kept > 100
    assert report.bad_rows == 1
    assert "the file is damaged here: Compressed file ended" in str(report.issues[-1])
    assert issue_texts(save(tmp_path, "b.jsonl.gz", GOOD)) == [
        "b.jsonl.gz:1: the file is damaged here: Not a gzipped file (b'{\"') → write the file again"
    ]


def test_cut_utf16_is_an_issue(tmp_path):
    path = save(tmp_path, "a.jsonl", '{"prompt": "a"}\n{"prompt": "b"}'.encode("utf-16")[:-1])
    report = check_dataset(path)
    assert report.bad_rows >= 1


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.csv", "a.tsv"])
def test_any_bytes_give_issues_and_never_a_traceback(name, tmp_path):
    for seed in range(20):
        noise = random.Random(seed).randbytes(3000)
        report = check_dataset(save(tmp_path, name, noise))
        assert not report.ok
        assert str(report)


def test_files_that_cannot_be_read(tmp_path):
    save(tmp_path, "train.jsonl", GOOD)
    with pytest.raises(NotFoundError, match=r"There is no file .*trian.jsonl. Did you mean .*train.jsonl\?"):
        load_examples(tmp_path / "trian.jsonl")
    with pytest.raises(DatasetError, match=r"is not a file. Name the file"):
        load_examples(tmp_path)
    with pytest.raises(DatasetError, match=r"is no dataset file. Use .jsonl, .ndjson, .json, .csv, .tsv, .parquet"):
        load_examples(save(tmp_path, "a.xlsx", "x"))
    with pytest.raises(DatasetError, match="is not a parquet file"):
        load_examples(save(tmp_path, "a.parquet", "x"))


@pytest.mark.parametrize("source", [5, None, b"x", {"prompt": "a"}, {}])
def test_sources_that_are_none(source):
    with pytest.raises(DatasetError, match="A dataset cannot be"):
        load_examples(source)


def test_read_rows_tells_the_origin(tmp_path):
    path = save(tmp_path, "a.jsonl", "\n" + GOOD + "{\n")
    good, bad = read_rows(path)
    assert (good.data, good.source, good.number, good.fault) == ({"prompt": "a"}, str(path), 2, None)
    assert (bad.data, bad.number, bad.fault is not None) == (None, 3, True)


# Round trips

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30).filter(str.strip)
CALLS = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.text("abc123", min_size=1),
            "type": st.just("function"),
            "function": st.fixed_dictionaries({"name": st.text("fgh", min_size=1), "arguments": TEXT}),
        }
    ),
    min_size=1,
    max_size=3,
)
MESSAGE = st.one_of(
    st.fixed_dictionaries({"role": st.sampled_from(["system", "user"]), "content": TEXT}),
    st.fixed_dictionaries({"role": st.just("assistant"), "content": st.none() | TEXT, "tool_calls": CALLS}),
    st.fixed_dictionaries({"role": st.just("tool"), "content": TEXT, "tool_call_id": TEXT, "name": TEXT}),
)
CONVERSATIONS = st.lists(st.lists(MESSAGE, min_size=1, max_size=5), min_size=1, max_size=4)


@settings(max_examples=120, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(CONVERSATIONS)
def test_random_conversations_keep_their_ids(conversations):
    rows = [{"messages": messages, "ground_truth": "x"} for messages in conversations]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.jsonl"
        write_jsonl(path, rows)
        assert [row.data for row in read_rows(path)] == rows
        assert ids(path) == ids(rows)
        assert ids(save_csv(Path(folder), rows)) == ids(rows)
