"""The platform's clients at their documented path. The code is in `benchmax.platform.sdk`."""

from benchmax.platform.sdk.client import (
    AsyncStorageClient,
    AsyncTrainerClient,
    LaunchArgSpec,
    StorageClient,
    TrainerClient,
)
from benchmax.platform.sdk.rollout_client import AsyncRolloutClient, ExampleValidation, RolloutClient, ValidationResult

__all__ = [
    "AsyncRolloutClient",
    "AsyncStorageClient",
    "AsyncTrainerClient",
    "ExampleValidation",
    "LaunchArgSpec",
    "RolloutClient",
    "StorageClient",
    "TrainerClient",
    "ValidationResult",
]
