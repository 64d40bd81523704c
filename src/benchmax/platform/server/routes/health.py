"""Whether the server is up."""

from __future__ import annotations

from fastapi import APIRouter
from sqlalchemy import text

from benchmax.platform.server.state import Services

router = APIRouter(tags=["health"])


@router.get("/healthz")
def healthz(services: Services) -> dict[str, str]:
    """Up, and able to read the database (503 when it is not)."""
    with services.database.read() as db:
        db.execute(text("SELECT 1"))
    return {"status": "ok"}
