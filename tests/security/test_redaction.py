"""A secret is taken out of texts in whatever form it is written, and in pieces (S34)."""

from __future__ import annotations

import base64
import json
import textwrap
import time
import unicodedata
import urllib.parse

import pytest

from benchmax.files import jsonl, redaction
from benchmax.files.redaction import MARK, Redactor
from benchmax.platform.runner.ingest import Ingest
from benchmax.platform.store.runs import events, rollouts
from platform_world import make_run

TOKEN = "sk-Live_0123456789/abc+DEF=="
PEM = "\n".join(
    [
        "-----BEGIN PRIVATE KEY-----",
        *textwrap.wrap(base64.b64encode(bytes(range(250)) * 4).decode(), 64),
        "-----END PRIVATE KEY-----",
        "",
    ]
)
BODY = PEM.splitlines()[1:-1]


def pieces_of(secret):
    """Pieces of a secret that nobody may read, of twelve letters each."""
    plain = "".join(secret.split())
    return {plain[at : at + 12] for at in range(0, len(plain) - 12, 12)}


def b64(text):
    return base64.b64encode(text.encode()).decode()


FORMS = {
    "as it is": TOKEN,
    "upper case": TOKEN.upper(),
    "lower case": TOKEN.lower(),
    "URL": urllib.parse.quote(TOKEN, safe=""),
    "form": urllib.parse.quote_plus(TOKEN),
    "URL in lower case": urllib.parse.quote(TOKEN, safe="").lower(),
    "base64": b64(TOKEN),
    "base64 for URLs": base64.urlsafe_b64encode(TOKEN.encode()).decode().rstrip("="),
    "basic auth": b64(f"user:{TOKEN}"),
    "basic auth of another": b64(f"me:{TOKEN}"),
    "basic auth without a name": b64(f":{TOKEN}"),
    "basic auth, the secret first": b64(f"{TOKEN}:x-oauth"),
    "hexadecimal": TOKEN.encode().hex(),
    "JSON": json.dumps({"key": TOKEN}),
    "JSON in JSON": json.dumps(json.dumps({"key": TOKEN})),
    "URL twice": urllib.parse.quote(urllib.parse.quote(TOKEN, safe=""), safe=""),
    "every sign in a URL": "".join(f"%{ord(sign):02X}" for sign in TOKEN),
    "JSON with slashes escaped": TOKEN.replace("/", "\\/"),
    "JSON with numbers": "".join(f"\\u{ord(sign):04x}" for sign in TOKEN),
    "JSON with some numbers": TOKEN.replace("+", "\\u002b").replace("=", "\\u003d"),
    "HTML": "".join(f"&#{ord(sign)};" for sign in TOKEN),
    "HTML in hexadecimal": "".join(f"&#x{ord(sign):x};" for sign in TOKEN),
    "Python": "".join(f"\\x{ord(sign):02x}" for sign in TOKEN),
    "base64 twice": b64(b64(TOKEN)),
    "base64 of UTF-16": base64.b64encode(TOKEN.encode("utf-16-le")).decode(),
    "HTML with zeros": "".join(f"&#x{ord(sign):06X};" for sign in TOKEN),
    "JavaScript": "".join(f"\\u{{{ord(sign):x}}}" for sign in TOKEN),
    "Python with eight digits": "".join(f"\\U{ord(sign):08x}" for sign in TOKEN),
    "octal": "".join(f"\\{ord(sign):03o}" for sign in TOKEN),
    "bytes with colons": TOKEN.encode().hex(":"),
    "bytes with dashes": TOKEN.encode().hex("-").upper(),
    "bytes with spaces": TOKEN.encode().hex(" "),
    "bytes of C": ", ".join(hex(byte) for byte in TOKEN.encode()),
    "a list of bytes": json.dumps({"type": "Buffer", "data": list(TOKEN.encode())}),
    "coloured": f"{TOKEN[:9]}\x1b[31m{TOKEN[9:]}\x1b[0m",
    "invisible characters": "\u200b".join(TOKEN),
    "zeros": "\0".join(TOKEN),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_token_is_hidden(form):
    told = Redactor([TOKEN])(f"before {FORMS[form]} after")
    assert MARK in told
    assert told.startswith("before ")
    assert told.endswith(" after")
    for piece in pieces_of(FORMS[form]) if form != "JSON" else [TOKEN]:
        assert piece not in told or piece in json.dumps({"key": ""}), told


PHRASE = "pässwörd geheim-日本"


@pytest.mark.parametrize(
    "written",
    [
        "".join(f"%{byte:02X}" for byte in PHRASE.encode()),
        repr(PHRASE.encode()),
        json.dumps(PHRASE),
        "".join(f"\\u{ord(sign):04x}" for sign in PHRASE),
        PHRASE.encode().decode("latin-1"),
        unicodedata.normalize("NFD", PHRASE),
        b64(json.dumps({"key": PHRASE})),
        "\n".join(textwrap.wrap(PHRASE, 6)),
    ],
)
def test_a_phrase_that_is_not_ascii_is_hidden(written):
    told = Redactor([PHRASE])(f"before {written} after")
    assert MARK in told
    assert "geheim" not in told


@pytest.mark.parametrize(
    "mark", ["…", "...", " … ", "...(truncated)", "[312 more characters]", "\n[90 bytes cut]\n", " <snip> "]
)
def test_a_secret_cut_in_the_middle_of_a_text_is_hidden(mark):
    for text in (
        f"log: {TOKEN[:14]}{mark} and more",
        f"a list {mark}{TOKEN[-14:]} and more",
        f"x {TOKEN[:12]}{mark}{TOKEN[-12:]} y",
    ):
        told = Redactor([TOKEN])(text)
        assert TOKEN[:8] not in told
        assert TOKEN[-8:] not in told
        assert told.replace(MARK, "").strip("x y") != ""


def test_a_piece_of_a_secret_that_was_not_cut_is_an_ordinary_word():
    address = "https://hooks.example.org/services/T0000/secret-of-mine"
    for text in ("see https://hooks.example.org/services/T0001", "https://hooks.example.org/ (the host)"):
        assert Redactor([address])(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "\\" * 300_000,
        "%25" * 100_000,
        "&#x" * 100_000,
        f" {TOKEN[:9]}" * 30_000,
        "ab " * 100_000,
        f"{TOKEN[:9]}\n{TOKEN[9:]} " * 5_000,
    ],
    ids=["backslashes", "percent", "html", "beginnings", "bytes", "broken"],
)
def test_no_text_takes_long(text):
    """The runner reads what runs of all users wrote: one line of one of them must not hold it up."""
    began = time.process_time()
    Redactor([TOKEN, PEM])(text)
    assert time.process_time() - began < 10


def test_what_stands_around_a_secret_stays():
    told = Redactor([TOKEN])(urllib.parse.quote(json.dumps({"key": TOKEN})))
    assert told == urllib.parse.quote('{"key": "') + MARK + urllib.parse.quote('"}')
    logins = b64(json.dumps({"auths": {"a": {"auth": b64(f"user:{TOKEN}")}}}))
    told = Redactor([TOKEN])(logins)
    start, _, end = told.partition(MARK)
    assert logins.startswith(start)
    assert logins.endswith(end)
    inner = b64(f"user:{TOKEN}")
    for piece in (inner[at : at + 12] for at in range(8, len(inner) - 16)):
        assert piece not in base64.b64decode(start + "A" * (-len(start) % 4)).decode("latin-1")


def test_ordinary_text_with_numbered_signs_stays_as_it_is():
    for text in ("100%25 done, 50%20%", "caf\\u00e9 &amp; &#33;", "C:\\\\users\\\\x", 'a\\"b', "%zz %4", "&#99999;"):
        assert Redactor([TOKEN])(text) == text


@pytest.mark.parametrize(
    "written",
    [
        PEM,
        textwrap.indent(PEM, "    "),
        PEM.replace("\n", " "),
        PEM.replace("\n", ""),
        PEM.replace("\n", "\r\n"),
        json.dumps({"key": PEM}),
        json.dumps({"arguments": json.dumps({"key": PEM})}),
        repr(PEM),
        base64.encodebytes(PEM.encode()).decode(),
        "".join(BODY),
        "\n".join(textwrap.wrap("".join(BODY), 40)),
        PEM[:700],
        PEM[333:],
        f"…{PEM[333:]}",
        f"{PEM[:700]}…",
    ],
)
def test_no_line_of_a_key_of_many_lines_is_left(written):
    told = Redactor([PEM])(f"{written}" if written in (PEM[:700], PEM[333:]) else written)
    left = "".join(told.split()).replace(MARK, " ")
    for line in [*BODY, *base64.b64encode(PEM.encode()).decode().split()]:
        assert not [line[at : at + 12] for at in range(len(line) - 12) if line[at : at + 12] in left]


@pytest.mark.parametrize("line", BODY)
def test_a_key_that_is_printed_line_by_line(line):
    assert Redactor([PEM])(f"env stdout: {line}") == f"env stdout: {MARK}"


@pytest.mark.parametrize("kept", range(8, len(TOKEN)))
def test_a_secret_that_a_limit_cut_in_two(kept):
    hide = Redactor([TOKEN])
    for cut in (f"the key is {TOKEN[:kept]}", f"the key is {TOKEN[:kept]}…", f"the key is {TOKEN[:kept]}..."):
        assert TOKEN[:8] not in hide(cut)
        assert hide(cut).startswith("the key is ")
    for cut in (f"{TOKEN[-kept:]} was the key", f"…{TOKEN[-kept:]} was the key"):
        assert TOKEN[-8:] not in hide(cut)
        assert hide(cut).endswith(" was the key")


def test_ordinary_text_stays():
    hide = Redactor([TOKEN, PEM, "short", "     ", "Master"])
    text = "max_tokens=7, Bearer, base64, private key, short, master; sk-live is a prefix. " * 50
    assert hide(text) == text
    assert hide("Master") == MARK
    assert hide("İ" * 20 + TOKEN.upper()) == "İ" * 20 + MARK
    assert Redactor(())("x" * 100) == "x" * 100


def test_long_texts_are_looked_through_quickly():
    import time

    hide = Redactor([TOKEN, PEM, *(f"another-secret-{number:04}" for number in range(20))])
    text = "The quick brown fox jumps over the lazy dog.\n" * 20_000
    began = time.process_time()
    assert hide(text) == text
    assert time.process_time() - began < 5


def test_the_database_of_a_public_run_holds_no_form_of_a_secret(store, tmp_path):
    """What an environment says in a message, a log line, an error that was cut at its limit."""
    with store.write() as session:
        run_id = make_run(session).id
    said = [*FORMS.values(), PEM, f"{'x' * 1985}{TOKEN[:15]}"]
    record = {
        "id": "a", "example_id": "e", "split": "train", "step": 0, "sample": 0, "reward": 1.0, "rewards": {"x": 1.0},
        "messages": [{"role": "user", "content": each} for each in said],
        "error": {"type": "ToolError", "message": said[-1]},
        "logs": [{"seconds": 0.0, "level": "INFO", "message": each} for each in said],
    }  # fmt: skip
    (tmp_path / "rollouts").mkdir()
    (tmp_path / "rollouts" / "train-0.jsonl").write_text(json.dumps(record) + "\n")
    alerts = [json.dumps({"kind": "alert", "time": 1.0, "message": each}) for each in said]
    (tmp_path / "events.jsonl").write_text("\n".join(alerts) + "\n")
    ingest = Ingest(store, run_id, tmp_path, [TOKEN, PEM])
    while not ingest.step():
        pass
    with store.read() as session:
        told = [row.message for row in rollouts.logs(session, run_id, limit=100)]
        told += [row.message for row in events.after(session, run_id, 0, 100) if row.category == "alert"]
    assert len(told) >= 2 * len(said)
    for each in told:
        assert MARK in each
        assert TOKEN[:10].lower() not in each.lower()
        assert BODY[3] not in each


def test_lines_of_a_run_directory_are_valid_and_clean():
    redaction.keep_secret([TOKEN, PEM])
    try:
        line = jsonl.line_of({"message": f"{'x' * 1985}{TOKEN[:15]}", "key": PEM, "n": 0.5})
    finally:
        redaction.keep_secret(())
    assert json.loads(line) == {"message": f"{'x' * 1985}{MARK}", "key": MARK, "n": 0.5}
