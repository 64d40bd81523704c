"""Fixtures that several folders share, and the order of the tests."""

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

pytest_plugins = ["platform_world"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The browser's tests come last: Playwright leaves an event loop running, beside which no other can be."""
    items.sort(key=lambda item: "browser" in item.path.parts)
