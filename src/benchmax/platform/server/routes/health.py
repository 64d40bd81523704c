"""Whether the server is up."""

from __future__ import annotations

from fastapi import APIRouter
from sqlalchemy import text

from benchmax.platform.server.state import Here

router = APIRouter(tags=["health"])


@router.get("/healthz")
def healthz(here: Here) -> dict[str, str]:
    """Up, and able to read the database (503 when it is not)."""
    with here.database.read() as session:
        session.execute(text("SELECT 1"))
    return {"status": "ok"}
