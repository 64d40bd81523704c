import math
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmax.envs import reward_helpers as helpers
from benchmax.envs.types import Transcript

USER = {"role": "user", "content": "capital of France?"}
OLD = {"role": "assistant", "content": "<answer>old</answer>"}
NEW = {"role": "assistant", "content": "<answer>Paris</answer>"}


def call(*names):
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": n, "type": "function", "function": {"name": n, "arguments": "{}"}} for n in names],
    }


# --- extract_completion_text (F15) ---


def test_completion_text_of_each_shape():
    blank = {"role": "assistant", "content": "  "}
    assert helpers.extract_completion_text("as is ") == "as is "
    assert helpers.extract_completion_text([USER, OLD, blank, NEW]) == OLD["content"] + "\n" + NEW["content"]
    for other in (None, 3, {}, [None, "x", 5]):
        assert helpers.extract_completion_text(other) == ""


def test_completion_text_leaves_out_assistant_turns_of_the_prompt():
    messages = Transcript([USER, OLD, USER, NEW], completion_start=3)
    assert helpers.extract_answer_block(helpers.extract_completion_text(messages)) == "Paris"


def test_completion_text_reads_content_parts():
    parts = [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {}}, "b", None]
    assert helpers.extract_completion_text([{"role": "assistant", "content": parts}]) == "ab"


# --- answer blocks (F41) ---


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("<answer> 4 </answer>", "4", "4"),
        ("<ANSWER>1</Answer> then <answer>2</answer>", "1", "2"),
        (" no tags ", "no tags", ""),
        ("<answer>open", "<answer>open", ""),
        ("</answer>x<answer>y</answer>", "y", "y"),
        ("<answer>1</answer><answer>2", "1", "1"),
        ("<answer>a<answer>b</answer>", "a<answer>b", "b"),
        ("<answer>two\nlines</answer>", "two\nlines", "two\nlines"),
        ("İ<answer>ß</answer>", "ß", "ß"),
    ],
)
def test_answer_blocks(text, first, last):
    assert helpers.extract_answer_block(text) == first
    assert helpers.extract_last_answer_block(text) == last


# --- matching ---


@pytest.mark.parametrize(
    ("said", "gold", "expected"),
    [
        ("Paris", "paris", 1),
        ('  "The  Paris." ', "paris", 1),
        ("**Paris**!", "Paris", 1),
        ("A", "A", 1),
        ("Vitamin A", "Vitamin", 0),
        ("C++", "C", 0),
        ("3.5", "35", 0),
        (".5", "5", 0),
        ("-4", "4", 0),
        ("a + b", "a - b", 0),
        ("", "", 0),
        (None, "x", 0),
        (4, "4", 1),
        ("ﬁne", "fine", 1),
        ("rome", ["Paris", "Rome"], 1),
    ],
)
def test_exact_match(said, gold, expected):
    assert helpers.exact_match(said, gold) == expected


@pytest.mark.parametrize(
    ("said", "gold", "expected"),
    [
        ("The answer is 42.", "42", 1),
        ("1,234.50", 1234.5, 1),
        ("3e2", "300", 1),
        ("1/2", "0.5", 1),
        ("first 7, then −3", "-3", 1),
        ("2024-01-05", "5", 1),
        ("42", "43", 0),
        ("no number", "1", 0),
        ("1", None, 0),
        ("1/0", "1", 0),
        ("nan", "nan", 0),
        (10**400, "1", 0),
        (float("inf"), float("inf"), 0),
        ("0.3333", "1/3", 0),
    ],
)
def test_numeric_match(said, gold, expected):
    assert helpers.numeric_match(said, gold) == expected


def test_numeric_match_tolerance():
    assert helpers.numeric_match("0.3333", "1/3", tolerance=1e-3) == 1.0


def test_f1_score():
    assert helpers.f1_score("The cat sat.", "cat sat down") == pytest.approx(2 * 2 / (2 + 3))
    assert helpers.f1_score("x", "y") == helpers.f1_score("", "") == 0.0
    assert helpers.f1_score("b c", ["a", "b c"]) == 1.0


def test_contains_answer_takes_whole_words():
    assert helpers.contains_answer("It is Paris, of course.", "paris") == 1.0
    assert helpers.contains_answer("comparison", "paris") == 0.0
    assert helpers.contains_answer("anything", "") == 0.0
    assert helpers.contains_answer("new york city", ["rome", "York City"]) == 1.0


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0.5, 0.5), (-1, 0), (7, 1), ("0.25", 0.25), ("x", 0), (None, 0), (math.nan, 0), (math.inf, 1), (10**400, 0)],
)
def test_clip01(value, expected):
    assert helpers.clip01(value) == expected


# --- retrieval ---


def test_percent_of_text_a_in_text_b():
    assert helpers.percent_of_text_a_in_text_b("", "abc") == 0.0
    assert helpers.percent_of_text_a_in_text_b("abcd", "xxabyycd") == 1.0
    assert helpers.percent_of_text_a_in_text_b("abcd", "ab") == 0.5
    reference = " ".join(f"word{i}" for i in range(200))
    long = "filler text " * 20_000
    assert helpers.percent_of_text_a_in_text_b(reference, long + reference) == 1.0
    half = " ".join(reference.split()[:100])
    assert helpers.percent_of_text_a_in_text_b(reference, long + half) == pytest.approx(0.5, abs=0.05)


def test_overlap_reward():
    tool = {"role": "tool", "content": "Paris is the capital of France"}
    flood = {"role": "assistant", "content": "<tool_call>" * 4}
    assert helpers.overlap_reward([USER, tool], "Paris is the capital of France") == 1.0
    assert helpers.overlap_reward([tool], "zzzz qqqq") == 0.0
    assert helpers.overlap_reward([tool, flood], tool["content"]) == 0.0
    chunks = [{"content": "Paris is the capital"}, {"content": " of France"}]
    assert helpers.overlap_reward([tool], "other", reference_chunks=chunks) > 0.9


def test_overlap_reward_survives_missing_content():
    assert helpers.overlap_reward([call("search"), {"role": "tool", "content": None}, {"role": "user"}], "x") == 0.0
    assert helpers.overlap_reward("text", None, reference_chunks=[{"content": None}, None]) == 0.0


def test_overlap_reward_does_not_pay_for_what_the_prompt_held():
    messages = Transcript([{"role": "user", "content": "the reference"}, NEW], completion_start=1)
    assert helpers.overlap_reward(messages, "the reference") == 0.0


def test_count_search_calls_counts_both_spellings():
    text = {"role": "assistant", "content": "<tool_call>{}</tool_call>" * 2}
    both = {**call("a"), "content": "<tool_call>{}</tool_call>"}
    assert helpers.count_search_calls("<tool_call><tool_call>") == 2
    assert helpers.count_search_calls([text, call("a", "b", "c"), both]) == 6
    assert helpers.count_search_calls(Transcript([call("a"), USER, call("b")], completion_start=2)) == 1
    assert helpers.count_search_calls(None) == 0
    assert helpers.search_within_budget(3, 3)
    assert not helpers.search_within_budget(4, 3)


def test_citation_score():
    chunks = [{"metadata": {"source_id": "a"}}, {"metadata": {"source_id": "B"}}, {"metadata": {}}]
    text = "x [Source: a] y [source:c ] z [SOURCE: a]"
    assert helpers.citation_score(text, chunks) == (0.5, 0.5)
    assert helpers.citation_score(text, chunks).recall == 0.5
    assert helpers.citation_score("[Source: b]", chunks, canonicalize=str.lower) == (1.0, 0.5)
    assert helpers.citation_score("none", chunks) == (0.0, 0.0)
    assert helpers.citation_score(text, None) == (0.0, 0.0)
    several = [{"metadata": {"file": "a"}}, {"metadata": {"url": "c"}}]
    assert helpers.citation_score(text, several, source_field=["url", "file"]) == (1.0, 1.0)


def test_tool_call_efficiency():
    efficiency = helpers.tool_call_efficiency
    assert efficiency([call("a", "b")]) == 1.0
    assert efficiency([call(*"abcd")], reference_chunk_count=1) == pytest.approx(math.exp(-0.2))
    assert efficiency([call(*"abcd")], correctness_raw=0.5, decay_rate=1.0) == pytest.approx(0.5 * math.exp(-2))
    assert efficiency([call(*"abcd")], max_calls=3) == 0.0
    assert efficiency([call("a")], correctness_raw=0.0) == 0.0
    ranges = [(0, 0, 0.1), (1, 2, 1.0), (3, None, 0.2)]
    assert [efficiency([call(*"abcdef"[:n])], ranges=ranges) for n in (0, 1, 2, 5)] == [0.1, 1.0, 1.0, 0.2]
    assert efficiency([call("a")], ranges=[(2, 3, 1.0)]) == 0.0


# --- hostile text ---

MEGABYTE = 1 << 20
ALPHABET = "".join(chr(0x4E00 + i) for i in range(120))
HOSTILE = [
    "<answer>", "</answer>", "<answer>a</answer>", "[source:", "9", "111,", "1,", "a ", "1e", "1/", "1e99999", "-",
    "(", ". ", "<tool_call>", ALPHABET, "[source: ",
]  # fmt: skip


@pytest.mark.parametrize("piece", HOSTILE)
def test_a_hostile_megabyte_is_quick(piece):
    text = piece * (MEGABYTE // len(piece)) + "1111"
    tool = [{"role": "tool", "content": text}]
    chunks = [{"metadata": {"source_id": "a"}}]
    checks = {
        "first": lambda: helpers.extract_answer_block(text),
        "last": lambda: helpers.extract_last_answer_block(text),
        "exact": lambda: helpers.exact_match(text, "Paris"),
        "number": lambda: helpers.numeric_match(text, "5"),
        "contains": lambda: helpers.contains_answer(text, "Paris"),
        "cite": lambda: helpers.citation_score(text, chunks),
        "overlap": lambda: helpers.overlap_reward(tool, text[:2000]),
        "calls": lambda: helpers.count_search_calls(text),
    }
    for name, check in checks.items():
        assert is_quick(check), name


def test_the_slowest_text_that_is_aligned_by_characters():
    a, b = (ALPHABET * 12)[:1500], (ALPHABET[::-1] * 40)[:3000]
    assert is_quick(lambda: helpers.percent_of_text_a_in_text_b(a, b))


def is_quick(check):
    """Within 0.1 s, or as long as this machine now takes for a short loop of Python: it may be slow, or do more."""
    return (best := fastest(check)) < 0.1 or best < fastest(lambda: sum(number for number in range(4_000_000)))


def fastest(check):
    """The best of a few tries in processor time: other work on the machine is not ours."""
    best = math.inf
    for _ in range(3):
        began = time.thread_time()
        check()
        best = min(best, time.thread_time() - began)
        if best < 0.05:
            break
    return best


ANYTHING = st.recursive(
    st.none() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["role", "content", "x"]), inner),
    max_leaves=12,
)


@given(ANYTHING, ANYTHING)
@settings(max_examples=150, deadline=None)
def test_nothing_makes_them_raise(completion, gold):
    helpers.extract_completion_text(completion)
    helpers.overlap_reward(completion, gold, reference_chunks=gold)
    helpers.count_search_calls(completion)
    helpers.citation_score(completion, gold)
    for score in (helpers.exact_match, helpers.numeric_match, helpers.f1_score, helpers.contains_answer):
        assert 0.0 <= score(completion, gold) <= 1.0
    assert 0.0 <= helpers.clip01(completion) <= 1.0
