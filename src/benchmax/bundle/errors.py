"""What can be wrong with a bundle."""

from __future__ import annotations

from benchmax.errors import UsageError


class BundlingError(UsageError):
    """An environment cannot be packed, or a bundle cannot be used."""


class ValidationError(BundlingError):
    """The class is not an environment, or the bundle is damaged."""


class DependencyError(BundlingError):
    """A dependency is written wrongly or cannot be installed."""


class IncompatiblePythonError(BundlingError):
    """The bundle was made with another Python minor version."""


class IncompatibleBenchmaxError(BundlingError):
    """The bundle was made by a benchmax this one cannot read."""
