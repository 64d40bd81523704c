"""Fixtures that several folders share, and the order of the tests."""

import pytest

pytest_plugins = ["platform_world"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The browser's tests come last: Playwright leaves an event loop running, beside which no other can be."""
    items.sort(key=lambda item: "browser" in item.path.parts)
