"""The host's view of the rows: joining, tokens drawn, leaving, moving."""

import numpy as np
import pytest

from benchmax.inference.engine.request import Request
from benchmax.inference.engine.row_table import RowTable
from benchmax.inference.engine.sampling import MAX_STOPS, SamplingParams


def request(prompt, *, limit=100, stops=(), **heard):
    return Request(list(prompt), SamplingParams(stop_token_ids=tuple(stops)), 0, limit, **heard)


@pytest.fixture
def table():
    made = RowTable()
    made.resize(4, 32, keep=0)
    return made


def join(table, row, prompt, **kind):
    asked = request(prompt, **kind)
    table.take(row, asked, asked.prompt, 0)
    table.held[row] = len(prompt)
    return asked


def drawn(table, rows, tokens):
    block = np.array(tokens)
    return table.extend(np.array(rows), block, np.linspace(-1, 0, block.size, dtype=np.float32).reshape(block.shape))


def test_a_burst_is_written_for_all_rows_at_once(table):
    first, second = join(table, 0, [5, 6]), join(table, 2, [7, 8, 9])
    counts, stopped, full = drawn(table, [2, 0], [[10, 11, 12], [20, 21, 22]])
    assert (counts.tolist(), stopped.any(), full.any()) == ([3, 3], False, False)
    assert table.tokens[0, :5].tolist() == [5, 6, 20, 21, 22]
    table.hand_over(second)
    assert second.ids == [10, 11, 12]
    assert second.logprobs == pytest.approx([-1, -0.8, -0.6])
    drawn(table, [0, 2], [[23], [13]])
    table.hand_over(first)
    table.hand_over(second)
    assert (first.ids, second.ids) == ([20, 21, 22, 23], [10, 11, 12, 13])
    assert len(second.logprobs) == 4


def test_a_row_ends_at_a_stop_token_or_at_its_limit_and_what_follows_is_none_of_it(table):
    join(table, 0, [5, 6], stops=[9])
    join(table, 1, [5, 6], limit=4, stops=[9])
    join(table, 2, [5, 6], stops=[8])
    counts, stopped, full = drawn(table, [0, 1, 2], [[3, 9, -1], [3, 4, -1], [9, 9, 9]])
    assert counts.tolist() == [2, 2, 3]
    assert stopped.tolist() == [True, False, False]
    assert full.tolist() == [False, True, False]


def test_a_row_that_did_not_run_ends_nothing(table):
    join(table, 0, [5, 9], stops=[9])
    counts, stopped, full = drawn(table, [0], [[-1, -1]])
    assert (counts.tolist(), stopped.tolist(), full.tolist()) == ([0], [False], [False])


def test_what_a_row_held_serves_who_begins_alike(table):
    first = join(table, 1, [1, 2, 3, 4, 5, 6])
    drawn(table, [1], [[7, 8]])
    table.leave(first)
    assert table.held[1] == 7  # the newest token has no keys and values yet
    assert table.best_prefix([1, 2, 3, 4, 5, 6, 7, 8, 9]) == (1, 7)
    assert table.best_prefix([1, 2, 3, 4, 5, 0, 0]) == (1, 5)
    assert table.best_prefix([1, 2, 3, 0, 0, 0]) == (-1, 0)  # too little to be worth a copy
    assert table.best_prefix([2, 1, 3, 4, 5, 6, 7]) == (-1, 0)


def test_the_longest_of_many_beginnings_is_found(table):
    table.resize(4, 512, keep=0)
    long = list(range(1, 400))
    for row, shared in enumerate((70, 300, 299, 10)):
        table.leave(join(table, row, long[:shared] + [0] * 40))
    assert table.best_prefix(long) == (1, 300)


def test_empty_rows_are_taken_first_then_the_oldest_and_the_source_last(table):
    for row in (2, 0, 1):
        table.leave(join(table, row, [row + 1] * 8))
    table.begin_wave()
    taken = []
    while (row := table.free_row(2, 4)) >= 0:
        taken.append(row)
        table.take(row, request([50]), [50], 0)
    assert taken == [3, 0, 1, 2]


def test_the_source_itself_is_taken_when_nothing_in_it_is_lost(table):
    table.leave(join(table, 1, [1] * 8))
    table.begin_wave()
    assert table.free_row(1, 7) == 1


def test_rows_move_and_the_table_grows_with_all_that_is_known(table):
    asked = join(table, 3, [1, 2, 3, 4], limit=9, stops=[6], on_tokens=print)
    drawn(table, [3], [[5]])
    table.move([3, 0], [0, 3])
    assert (asked.row, table.requests[0], table.requests[3]) == (0, asked, None)
    table.resize(6, 64, keep=1)
    _, stopped, full = drawn(table, [0], [[6]])
    assert (stopped.tolist(), full.tolist(), table.listens[0]) == ([True], [False], True)
    assert table.fetch(asked)[0] == [5, 6]
    assert table.fetch(asked)[0] == []
    assert table.busy.tolist() == [True] + [False] * 5


def test_the_device_lacks_stops_beyond_its_few_so_the_host_listens(table):
    assert not request([1], stops=range(MAX_STOPS)).listens
    assert request([1], stops=range(MAX_STOPS + 1)).listens
    assert request([1], should_stop=lambda ids: None).listens
