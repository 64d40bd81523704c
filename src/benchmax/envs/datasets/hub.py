"""Datasets of the Hugging Face hub. Without a network, what was fetched before is used, and nothing is tried again."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from benchmax.errors import NotFoundError

REACH_SECONDS = 2.0
"""The hub answers a connection within this time, or there is no network."""


def load_hub_dataset(dataset: str, /, **options: Any) -> Any:
    """What `datasets.load_dataset` returns; NotFoundError when there is no network and it was not fetched before."""
    from datasets import load_dataset

    if _reachable():
        return load_dataset(dataset, **options)
    try:
        with _offline():
            return load_dataset(dataset, **options)
    except (ConnectionError, ValueError) as error:
        if not isinstance(error, ConnectionError) and "cache" not in str(error):
            raise
        raise NotFoundError(
            f"The Hugging Face hub cannot be reached from here, and {dataset!r} was not fetched before. "
            "Check the network and HF_HUB_OFFLINE, or save the rows as a file elsewhere and give that: --data FILE."
        ) from error


def _reachable() -> bool:
    """Whether the hub can be connected to; behind a proxy, only that can say. Looking up a name may take its time."""
    from huggingface_hub import constants

    if constants.is_offline_mode():
        return False
    if getproxies():
        return True
    address = urlsplit(constants.ENDPOINT)
    found = threading.Event()

    def knock() -> None:
        with contextlib.suppress(OSError):
            place = (address.hostname or "", address.port or (80 if address.scheme == "http" else 443))
            socket.create_connection(place, timeout=REACH_SECONDS).close()
            found.set()

    thread = threading.Thread(target=knock, daemon=True)
    thread.start()
    thread.join(REACH_SECONDS)
    return found.is_set()


@contextlib.contextmanager
def _offline() -> Iterator[None]:
    """The libraries of the hub look in their caches alone."""
    from datasets import config
    from huggingface_hub import constants

    before = config.HF_HUB_OFFLINE, constants.HF_HUB_OFFLINE
    config.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        config.HF_HUB_OFFLINE, constants.HF_HUB_OFFLINE = before
