"""The platform's clients at their documented path. The code is in `benchmax.platform.sdk`."""

from benchmax.platform.sdk.client import AsyncTrainerClient, TrainerClient
from benchmax.platform.sdk.requests.launches import LaunchArgSpec
from benchmax.platform.sdk.rollout_client import AsyncRolloutClient, ExampleValidation, RolloutClient, ValidationResult
from benchmax.platform.sdk.storage_client import AsyncStorageClient, StorageClient

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
