"""A GPU shared with others: memory claimed in time, given back when it is scarce, waited for when there is none."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import torch

from benchmax.memory import out_of_memory

T = TypeVar("T")

SCARCE = 0.15
"""A smaller share of a GPU's memory that is free is too little for two."""
PATIENCE = 10.0
"""Seconds to wait for what others give back."""
TRIES = 5


def claim_workspaces(device: torch.device) -> None:
    """Have the matrix library take its memory now, in the threads of both passes: later there may be none left."""
    if device.type == "cuda":
        ones = torch.ones(8, 8, device=device, requires_grad=True)
        (ones @ ones).sum().backward()  # type: ignore[no-untyped-call]


def make_room(device: torch.device) -> None:
    """Give back what an update no longer needs, where others run short of memory."""
    if device.type == "cuda" and _scarce(device):
        torch.cuda.empty_cache()


def wait_for_room(device: torch.device) -> None:
    """Give back all that can be, and others a little time to do the same."""
    if device.type != "cuda":
        return
    torch.cuda.empty_cache()
    until = time.monotonic() + PATIENCE
    while _scarce(device) and time.monotonic() < until:
        time.sleep(0.25)


def patiently(work: Callable[[], T], device: torch.device) -> T:
    """Do what can be done again; where memory runs out on a GPU, again after a while."""
    for _ in range(TRIES if device.type == "cuda" else 0):
        try:
            return work()
        except RuntimeError as error:
            if not out_of_memory(error):
                raise
        wait_for_room(device)
    return work()


def _scarce(device: torch.device) -> bool:
    free, total = torch.cuda.mem_get_info(device)
    return free < SCARCE * total
