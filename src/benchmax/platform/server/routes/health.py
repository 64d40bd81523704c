"""Whether the server is up."""

from __future__ import annotations

from sqlalchemy import text

from benchmax.platform.server.server_services import Services
from benchmax.platform.server.threads import Router

router = Router(tags=["health"])


@router.get("/healthz")
def healthz(services: Services) -> dict[str, str]:
    """Up, and able to read the database (503 when it is not)."""
    with services.database.read() as db:
        db.execute(text("SELECT 1"))
    return {"status": "ok"}
