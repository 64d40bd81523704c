"""Wikitext as plain text, also when it was made to be slow."""

from __future__ import annotations

import time

import pytest

from benchmax.search.sources.wikitext import plain


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("'''Chad''' is a [[country]] in [[Africa|Central Africa]].", "Chad is a country in Central Africa."),
        ("A{{cite|x|{{nested}}}}B<ref name=a>c</ref><ref name=b/>C", "ABC"),
        ("x\n{| class=a\n|-\n| cell\n|}\ny", "x\n\ny"),
        ("[[File:a.png|thumb|A [[nested]] caption]]Text", "Text"),
        ("[[Category:Chad]]\n== History ==\n* one\n# two", "History\none\ntwo"),
        ("[https://example.org a link] and [https://example.org]", "a link and"),
        ("{{lang|fr|bonjour}} {{convert|3|km|mi}}", "bonjour 3 km"),
        ("a &amp; b&nbsp;c <!-- hidden --> d", "a & b c d"),
        ("{{never closed\n== Next ==\nstays", "Next\nstays"),
        ("a<REF>note</REF> b<Ref name=x/>, c<Ref>d</ref>.", "a b, c."),
        ("<gallery>one<ref>two</ref></gallery>three<ref>never closed", "threenever closed"),
        ("<math>x^2</math><syntaxhighlight lang=c>int x;</syntaxhighlight>done", "done"),
    ],
)
def test_what_a_reader_sees(text: str, said: str) -> None:
    assert plain(text) == said


@pytest.mark.parametrize(
    "piece", ["{{", "[[", "<ref>", "<!--", "{|\n", "'''", "== ", "}}", "[[a|", "<a ", "&amp;", "[http://"]
)
def test_time_grows_with_the_text(piece: str) -> None:
    began = time.process_time()
    plain(piece * 100_000)
    assert time.process_time() - began < 5
