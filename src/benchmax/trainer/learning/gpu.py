"""The memory of a GPU that others use too: claimed early, released when it is scarce, waited for when there is none.

Facts about the GPU come from torch, which is loaded anyway.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import torch

from benchmax.memory import out_of_memory

T = TypeVar("T")

SCARCE_SHARE = 0.15
"""Memory is scarce when a smaller share of it is free."""
WAIT_SECONDS = 10.0
"""How long to wait for memory that others release."""
TRIES = 5


def claim_workspaces(device: torch.device) -> None:
    """Make the matrix library allocate its workspaces now, for both passes: later there may be no memory left."""
    if device.type == "cuda":
        ones = torch.ones(8, 8, device=device, requires_grad=True)
        (ones @ ones).sum().backward()  # type: ignore[no-untyped-call]


def release_if_scarce(device: torch.device) -> None:
    """Release what an update no longer needs, where memory is scarce."""
    if device.type == "cuda" and _scarce(device):
        torch.cuda.empty_cache()


def wait_for_memory(device: torch.device) -> None:
    """Release all that can be released, and give others a little time to do the same."""
    if device.type != "cuda":
        return
    torch.cuda.empty_cache()
    until = time.monotonic() + WAIT_SECONDS
    while _scarce(device) and time.monotonic() < until:
        time.sleep(0.25)


def retry_without_memory(work: Callable[[], T], device: torch.device) -> T:
    """Do repeatable work; when a GPU runs out of memory, again after a while."""
    for _ in range(TRIES if device.type == "cuda" else 0):
        try:
            return work()
        except RuntimeError as error:
            if not out_of_memory(error):
                raise
        wait_for_memory(device)
    return work()


def _scarce(device: torch.device) -> bool:
    free, total = torch.cuda.mem_get_info(device)
    return free < SCARCE_SHARE * total
