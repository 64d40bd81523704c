"""Which signals stop a command."""

from __future__ import annotations

import signal

import pytest

from benchmax.concurrency import stop_signals


@pytest.mark.parametrize("under_nohup", [True, False])
def test_a_terminal_that_closes_stops_nothing_under_nohup(under_nohup: bool) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN if under_nohup else signal.SIG_DFL)
    try:
        assert {signal.SIGINT, signal.SIGTERM} <= set(stop_signals())
        assert (signal.SIGHUP in stop_signals()) is not under_nohup
    finally:
        signal.signal(signal.SIGHUP, before)
