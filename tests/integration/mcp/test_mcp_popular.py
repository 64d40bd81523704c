"""Widely used servers that nobody here wrote: they start, are isolated, are reset and leave nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mcp_popular import POPULAR, Popular, install, trial

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # the first run installs them


@pytest.mark.parametrize("server", POPULAR, ids=lambda server: server.package)
def test_a_popular_server_works_unmodified(server: Popular, tmp_path: Path) -> None:
    if server.needs is not None and shutil.which(server.needs) is None:
        pytest.skip(f"needs {server.needs}")
    installed, missing = install(server)
    if missing is not None:
        pytest.skip(f"it cannot be installed: {missing}")
    outcome = trial(server, installed, tmp_path)
    assert (outcome.isolated, outcome.forgotten, outcome.left) == (True, True, 0)
