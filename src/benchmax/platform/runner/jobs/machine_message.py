"""What the runner tells a child about the machine: where packages are, whether there are other users, closed ports."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import func, select

from benchmax.files.links import read_plain
from benchmax.net.origins import origin
from benchmax.platform.store.database import Database
from benchmax.platform.store.datadir import DataDir
from benchmax.platform.store.tables import User

_INFO_BYTES = 65_536


def machine_message(database: Database, data: DataDir) -> dict[str, Any]:
    """The part of the runner's message that is the same for all jobs."""
    with database.read() as db:
        count = db.scalar(select(func.count()).select_from(User).where(User.deleted.is_(None)))
    url = _server_url(data)
    ports = {port for each in (url, data.database_url() or "") if (port := origin(each).port)}
    sandbox = {"several_users": (count or 0) > 1, "closed_ports": sorted(ports), "platform": url}
    return {"venvs": str(data.venvs), "sandbox": sandbox}


def _server_url(data: DataDir) -> str:
    """The address of the platform's server; empty when it is not known."""
    try:
        return str(json.loads(read_plain(data.root, data.server_info.name, _INFO_BYTES))["url"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""
