"""Searching: the right text first, whatever is typed, in any thread."""

from __future__ import annotations

import pickle
import random
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmax.errors import UsageError
from benchmax.search import Index, SearchClient
from benchmax.search.build import index_documents
from benchmax.search.memory_index import MemoryIndex
from benchmax.search.snippet import snippet
from benchmax.search.types import ChunkSource, Document

TEXTS = [
    Document("a", "Geography of Australia", "Coastline: 25,760 km\nClimate: arid", {"year": 2015, "kind": "land"}),
    Document("b", "Geography of Norfolk Island", "East of Australia.\nCoastline: 32 km\nAustralia", {"year": 2014}),
    Document(
        "c", "Economy of Chad", "Chad exports oil. Café owners sell boundaries, running shoes.", {"kind": "money"}
    ),
]
INDEX = MemoryIndex(TEXTS)


def found(query: str, **options: object) -> list[str]:
    return [hit.id for hit in INDEX.search(query, **options)]  # type: ignore[arg-type]


def test_an_index_is_both_ports() -> None:
    assert isinstance(INDEX, SearchClient)
    assert isinstance(INDEX, ChunkSource)


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("Australia coastline", "a"), ("coastline of norfolk", "b"), ("cafe", "c"), ("CAFÉ", "c"), ("boundary", "c"),
        ("run", "c"), ("economy_of_chad", "c"), ("Economy of Chad", "c"),
    ],
)  # fmt: skip
def test_the_right_text_comes_first(query: str, first: str) -> None:
    assert found(query)[0] == first


@given(st.text(max_size=60))
def test_nothing_that_is_typed_is_a_query_language(text: str) -> None:
    assert isinstance(INDEX.search(text, 2), list)


@pytest.mark.parametrize(
    "query", ['"', "a OR", "NEAR(a b)", "title:chad", "chad*", "-chad", "^chad", "a AND NOT b", "()"]
)
def test_operators_are_words(query: str) -> None:
    found(query)


def test_limits_offsets_and_modes() -> None:
    everything = found("australia chad coastline")
    assert len(everything) == 3
    assert found("australia chad coastline", limit=1, offset=1) == everything[1:2]
    assert len(INDEX.search("coastline", 0)) == 1
    assert found("") == found("...") == []
    with pytest.raises(UsageError, match="lexical"):
        INDEX.search("x", mode="vector")


@pytest.mark.parametrize("filters", [None, {"kind": "even"}])
def test_pages_fit_together(filters: dict[str, str] | None) -> None:
    draw = random.Random(1)
    documents = [
        Document(
            f"d{n}", draw.choice(("Lamp warranty", "Lamp", "Note")),
            " ".join(draw.choices(("lamp", "warranty", "paper", "noise"), k=draw.randint(5, 60))),
            {"kind": "odd" if n % 2 else "even"},
        )
        for n in range(300)
    ]  # fmt: skip
    index = MemoryIndex(documents)
    pages = [index.search("lamp warranty", 10, offset=at, filters=filters) for at in range(0, 100, 10)]
    ids = [hit.id for page in pages for hit in page]
    assert len(set(ids)) == len(ids) == 100


@pytest.mark.parametrize(
    ("filters", "ids"),
    [
        ({"kind": "land"}, ["a"]),
        ({"field": "year", "op": "gte", "value": 2014}, ["a", "b"]),
        ({"and": [{"field": "year", "op": "lt", "value": 2015}, {"not": {"kind": "land"}}]}, ["b"]),
        ({"or": [{"kind": "money"}, {"year": 2014}]}, ["b"]),
    ],
)
def test_filters_narrow_a_search(filters: dict[str, object], ids: list[str]) -> None:
    assert sorted(found("australia coastline", filters=filters)) == ids


def test_an_index_works_in_many_threads_and_can_be_pickled(tmp_path: Path) -> None:
    index = index_documents(TEXTS, tmp_path / "a.sqlite", [("Oz", "Geography of Australia")])
    copies: list[Index] = [index, pickle.loads(pickle.dumps(index)), pickle.loads(pickle.dumps(INDEX))]
    wrong: list[str] = []

    def look(copy: Index) -> None:
        for _ in range(20):
            if copy.search("Australia coastline", 1)[0].id != "a":
                wrong.append(repr(copy))

    threads = [threading.Thread(target=look, args=[copy]) for copy in copies * 4]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert index.article("oz").id == "a"  # type: ignore[union-attr]
    index.close()
    assert index.get("c") == TEXTS[2], "a closed index opens again"
    index.close()


def test_samples_are_the_same_every_time() -> None:
    assert INDEX.sample_chunks(2, seed=3) == INDEX.sample_chunks(2, seed=3)
    assert [each.id for each in INDEX.sample_chunks(9, 60)] == ["c"]


def test_frequent_words_do_not_hide_rare_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a budget for a tenth of the documents, a query of frequent and rare words finds the one with the rare."""
    from benchmax.search import index as index_module

    monkeypatch.setattr(index_module, "SCORED", 50)
    rng = random.Random(0)
    common = [f"common{number}" for number in range(5)]
    texts = [
        Document(str(number), f"T{number}", " ".join([*rng.sample(common, 4), f"rare{number}"]))
        for number in range(500)
    ]
    index = MemoryIndex(texts)
    for number in rng.sample(range(500), 20):
        assert index.search(f"common0 common1 common2 rare{number}", 1)[0].id == str(number)
    assert index.search("common0 common1", 5)


def test_snippets_begin_where_the_words_are() -> None:
    text = "Growth rate: 2 %\nBirth rate: 38.57 births\nDeath rate: 13.89 deaths\nNet rate: 1\n" + "filler words " * 40
    assert snippet(text, ["death", "rate"], 40).startswith("… Death rate: 13.89 deaths")
    assert snippet(text, ["nothing"], 30).startswith("Growth rate")
    assert snippet("short", ["short"]) == "short"
    assert len(snippet("a b " * 100_000, ["b"], 50)) < 60
