"""What the runner tells a child about the machine: where packages are, whether there are other users, closed ports."""

from __future__ import annotations

from typing import Any

from sqlalchemy import func, select

from benchmax.net.origins import origin
from benchmax.platform.runner.children.child_files import read_child_file
from benchmax.platform.store.database import Database
from benchmax.platform.store.datadir import DataDir
from benchmax.platform.store.tables import User


def machine_message(database: Database, data: DataDir) -> dict[str, Any]:
    """The part of the runner's message that is the same for all jobs."""
    with database.read() as db:
        count = db.scalar(select(func.count()).select_from(User).where(User.deleted.is_(None)))
    url = str(read_child_file(data.server_info).get("url", ""))
    ports = {port for each in (url, data.database_url() or "") if (port := origin(each).port)}
    sandbox = {"several_users": (count or 0) > 1, "closed_ports": sorted(ports), "platform": url}
    return {"venvs": str(data.venvs), "sandbox": sandbox}
