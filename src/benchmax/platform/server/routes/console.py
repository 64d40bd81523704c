"""The built web console: its files, and its one page under every address it knows."""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter
from fastapi.responses import FileResponse

from benchmax.platform.server.access import PAGES
from benchmax.platform.server.problems import Refused


def pages(folder: Path) -> APIRouter:
    """Routes for the console in `folder` (`index.html`, `assets/…`)."""
    router = APIRouter(include_in_schema=False)
    root = folder.resolve()

    @router.get("/assets/{path:path}")
    def asset(path: str) -> FileResponse:
        file = (root / "assets" / path).resolve() if "\0" not in path else root
        if not file.is_relative_to(root / "assets") or not file.is_file():
            raise Refused(404, "There is no such file.")
        return FileResponse(file, headers={"Cache-Control": "public, max-age=31536000, immutable"})

    @router.get("/")
    def index() -> FileResponse:
        return FileResponse(root / "index.html", headers={"Cache-Control": "no-cache"})

    for page in PAGES:
        router.add_api_route(f"/{page}", index, methods=["GET"])
        router.add_api_route(f"/{page}/{{path:path}}", index, methods=["GET"])
    return router
