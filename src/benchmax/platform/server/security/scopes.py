"""Which scope each route needs, and the check of it. A route that is not in the list keeps the app from starting.

`open` needs no credentials, `public` shows public runs without them, the rest needs a key with that scope, or a login,
which has all. Whose run it is, is decided in `run_access`.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from fastapi import FastAPI
from fastapi.routing import iter_route_contexts
from starlette.routing import Mount, compile_path

from benchmax.platform.server.problems import Refused
from benchmax.platform.server.security.authentication import KEY_HINT, Principal

Level: TypeAlias = Literal["open", "public", "read", "write", "admin"]

PAGES = ("experiments", "train", "datasets", "environments", "playground", "settings", "device")
"""Addresses of the console, as in `console/src/router.tsx`; all return its one page."""

_RUN = "/v1/train/runs/{run_id}"

ACCESS: dict[Level, frozenset[str]] = {
    "open": frozenset(
        {
            "GET /healthz",
            "GET /login",
            "POST /login",
            # The token in the address is the credential, and it works once.
            "PUT /v1/storage/uploads/{token}",
            # The protocol of a device that has nothing yet.
            "POST /api/auth/device/code",
            "POST /api/auth/device/token",
            # The console's files.
            "GET /",
            "GET /assets/{path:path}",
            *(f"GET /{page}" for page in PAGES),
            *(f"GET /{page}/{{path:path}}" for page in PAGES),
        }
    ),
    "public": frozenset(
        {
            f"GET {_RUN}",
            f"GET {_RUN}/details",
            f"GET {_RUN}/events",
            f"GET {_RUN}/scalars",
            f"GET {_RUN}/environment-logs",
            f"GET {_RUN}/stream",
            f"GET {_RUN}/alerts",
            f"GET {_RUN}/checkpoints",
            f"GET {_RUN}/external-eval",
            f"GET {_RUN}/rollouts",
            f"GET {_RUN}/rollouts/outline",
            f"GET {_RUN}/rollouts/search",
            f"GET {_RUN}/rollouts/summary",
            f"GET {_RUN}/rollouts/heatmap",
            f"GET {_RUN}/rollouts/mode-average",
            f"GET {_RUN}/rollouts/component-averages",
            f"GET {_RUN}/rollouts/comparison",
            f"GET {_RUN}/rollouts/comparison/summary",
            f"GET {_RUN}/rollouts/{{rollout_id}}/details",
            f"GET {_RUN}/config",
            f"GET {_RUN}/system",
        }
    ),
    "read": frozenset(
        {
            "GET /openapi.json",
            "GET /v1/whoami",
            "POST /logout",
            "GET /api/auth/token",
            "GET /v1/models",
            "GET /v1/models/{name:path}",
            # Also with the key of the session, which opens nothing else.
            "GET /v1/sessions/{session_id}/models",
            "POST /v1/sessions/{session_id}/collect",
            "GET /v1/train/launch-args",
            "GET /v1/train/runs",
            "GET /v1/train/runs.csv",
            "GET /v1/train/curves",
            "GET /v1/playground/sessions/{session_id}",
            f"GET {_RUN}/logs",
            f"GET {_RUN}/doctor",
            f"GET {_RUN}/checkpoints/{{name}}/download",
            "GET /v1/storage/files",
            "GET /v1/datasets",
            "GET /v1/datasets/preview",
            "GET /v1/environments",
            "GET /v1/environments/{environment_id}",
            "GET /v1/environments/{environment_id}/doctor",
            "GET /v1/environments/{environment_id}/doctor/{report_id}",
            "GET /v1/corpora",
            "GET /v1/corpora/{corpus_id}",
            "GET /v1/corpora/{corpus_id}/chunks",
            "POST /v1/corpora/{corpus_id}/search",
        }
    ),
    "write": frozenset(
        {
            "GET /v1/storage/upload-url",
            "POST /v1/datasets",
            "POST /v1/datasets/rows",
            "DELETE /v1/datasets",
            "POST /v1/environments/{environment_id}/doctor",
            "POST /v1/train/runs/launch",
            "POST /v1/train/runs/sft",
            "POST /v1/chat/completions",
            "PUT /v1/sessions/{session_id}",
            "DELETE /v1/sessions/{session_id}",
            "POST /v1/sessions/{session_id}/chat/completions",
            "POST /v1/rollout/stream",
            "POST /v1/rollout/batch/stream",
            "POST /rollout/stream",
            "POST /rollout/batch/stream",
            "POST /v1/playground/sessions",
            "DELETE /v1/playground/sessions/{session_id}",
            "POST /v1/playground/sessions/{session_id}/messages",
            f"PATCH {_RUN}",
            f"DELETE {_RUN}",
            f"POST {_RUN}/cancel",
            f"POST {_RUN}/resume",
            f"POST {_RUN}/fork",
            f"POST {_RUN}/rescore",
            f"POST {_RUN}/external-eval",
            "POST /v1/corpora",
            "DELETE /v1/corpora/{corpus_id}",
            "POST /v1/corpora/{corpus_id}/chunks",
        }
    ),
    "admin": frozenset(
        {
            "GET /v1/keys",
            "POST /v1/keys",
            "DELETE /v1/keys/{key_id}",
            "GET /v1/secrets",
            "PUT /v1/secrets/{name}",
            "DELETE /v1/secrets/{name}",
            "GET /v1/endpoints",
            "POST /v1/endpoints",
            "DELETE /v1/endpoints/{endpoint_id}",
            "GET /v1/webhooks",
            "POST /v1/webhooks",
            "DELETE /v1/webhooks/{webhook_id}",
            "GET /v1/webhooks/{webhook_id}/deliveries",
            "POST /v1/webhooks/{webhook_id}/test",
            "GET /v1/audit",
            "GET /v1/users",
            "POST /v1/users",
            "DELETE /v1/users/{user_id}",
            "POST /v1/password",
            "POST /v1/sign-out",
            "GET /api/auth/device",
            "POST /api/auth/device/approve",
        }
    ),
}

_LEVELS: dict[str, Level] = {route: level for level, routes in ACCESS.items() for route in routes}


class AccessTable:
    """The level of every request; RuntimeError for an app with a route that is in no list."""

    def __init__(self, app: FastAPI) -> None:
        self._routes = []
        for method, path in routes_of(app):
            level = _LEVELS.get(f"{method} {path}")
            if level is None:
                raise RuntimeError(f"The route {method} {path} is in no list of {__name__}. Say there who may call it.")
            self._routes.append((compile_path(path)[0], method, level))

    def find(self, method: str, path: str) -> tuple[Level, str | None]:
        """The level a request needs, and the id of the run it names, if it names one.

        What matches no route needs credentials too, so a 404 reveals nothing without them.
        """
        for regex, allowed, level in self._routes:
            if allowed == method and (match := regex.match(path)):
                return level, match.groupdict().get("run_id")
        return "read", None


def routes_of(app: FastAPI) -> list[tuple[str, str]]:
    """Every (method, path) of an app, HEAD left out: it needs credentials everywhere."""
    found = []
    for route in iter_route_contexts(app.routes):
        if isinstance(route.original_route, Mount) or route.methods is None:
            raise RuntimeError(f"The route {route.path} has no methods of its own; add plain routes, not mounts.")
        found += [(method, route.path or "") for method in sorted(route.methods) if method != "HEAD"]
    return found


def check_scope(principal: Principal | None, level: Level) -> None:
    """Raise Refused when the caller has no credentials (401), or not the scope that this level needs (403)."""
    if level in ("open", "public"):
        return
    if principal is None:
        raise Refused(401, f"This needs an API key. {KEY_HINT}", WWW_Authenticate="Bearer")
    if level not in principal.scopes:
        scopes = ", ".join(sorted(principal.scopes))
        raise Refused(403, f"This needs a key with the scope {level!r}; yours has {scopes}. Use or make another key.")
