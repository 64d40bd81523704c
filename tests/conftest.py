"""Fixtures that several folders share, and the order of the tests."""

import os
import signal

import pytest
from hypothesis import HealthCheck, settings

# The models are tiny: in this process and in those it starts, a second thread would only spin.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shell starts what it puts in the background deaf to Ctrl-C, nohup to a closed terminal; some tests send both.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# The same examples in every run: a new one that fails belongs to whoever looks for it, not to whoever comes by.
settings.register_profile("any machine", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

pytest_plugins = ["platform_world"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The browser's tests come last: Playwright leaves an event loop running, beside which no other can be."""
    items.sort(key=lambda item: "browser" in item.path.parts)
