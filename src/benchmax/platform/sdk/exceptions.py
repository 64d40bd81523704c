"""What the platform's clients raise.

TrainerError
├── AuthenticationError     401: no key, or one that is not valid
│   └── DeviceAuthError     a sign-in by device code that failed
├── JobLaunchError          the launch was refused
└── PlatformRolloutError    a rollout that the platform plays; `RolloutError` in `benchmax.platform.exceptions`
    ├── RolloutNotFound     404
    ├── RolloutServerError  5xx
    └── RolloutStreamError  the stream broke off
"""

from __future__ import annotations

from typing import Any

from benchmax.errors import BenchmaxError


class TrainerError(BenchmaxError, RuntimeError):
    """The platform refused or could not be reached; `status_code` is the HTTP status, if there was one."""

    def __init__(self, message: str, status_code: int | None = None) -> None:
        super().__init__(message)
        self.status_code = status_code

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.status_code)


class AuthenticationError(TrainerError):
    """There is no API key, or the platform does not take it."""


class DeviceAuthError(AuthenticationError):
    """Nobody confirmed the code of a sign-in, or it was refused."""


class JobLaunchError(TrainerError):
    """The run was not launched."""


class PlatformRolloutError(TrainerError):
    """A rollout on the platform failed. `benchmax.errors.RolloutError` is about rollouts of this process."""


class RolloutNotFound(PlatformRolloutError):
    """What the rollout needs is not there."""


class RolloutServerError(PlatformRolloutError):
    """The rollout server failed."""


class RolloutStreamError(PlatformRolloutError):
    """The stream ended before the rollout did."""
