"""What the platform's clients raise, at its documented path. The code is in `benchmax.platform.sdk.exceptions`."""

from benchmax.platform.sdk.exceptions import (
    AuthenticationError,
    DeviceAuthError,
    JobLaunchError,
    RolloutError,
    RolloutNotFound,
    RolloutServerError,
    RolloutStreamError,
    TrainerError,
)

__all__ = [
    "AuthenticationError",
    "DeviceAuthError",
    "JobLaunchError",
    "RolloutError",
    "RolloutNotFound",
    "RolloutServerError",
    "RolloutStreamError",
    "TrainerError",
]
