"""Fixtures that several folders share."""

pytest_plugins = ["platform_world"]
