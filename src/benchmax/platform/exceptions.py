"""What the platform's clients raise, at its documented path. The code is in `benchmax.platform.sdk.exceptions`.

`RolloutError` is the published name of `PlatformRolloutError`; it is not `benchmax.errors.RolloutError`.
"""

from benchmax.platform.sdk.exceptions import (
    AuthenticationError,
    DeviceAuthError,
    JobLaunchError,
    PlatformRolloutError,
    RolloutNotFound,
    RolloutServerError,
    RolloutStreamError,
    TrainerError,
)

RolloutError = PlatformRolloutError

__all__ = [
    "AuthenticationError",
    "DeviceAuthError",
    "JobLaunchError",
    "PlatformRolloutError",
    "RolloutError",
    "RolloutNotFound",
    "RolloutServerError",
    "RolloutStreamError",
    "TrainerError",
]
