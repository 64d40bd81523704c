"""Every router of the API, in the order in which routes are tried: first what consoles read all the time."""

from __future__ import annotations

from benchmax.platform.server.routes import (
    account,
    corpora,
    datasets,
    environments,
    health,
    model_sessions,
    openai_api,
    signin,
    storage,
    users,
    webhooks,
)
from benchmax.platform.server.routes.runs import (
    checkpoints,
    evals,
    launching,
    playground,
    rollout_stream,
    rollouts,
    run_pages,
    runs,
)

_MODULES = (
    health, runs, rollouts, launching, run_pages, checkpoints, evals, storage, datasets, environments, corpora, account,
    webhooks, users, playground, rollout_stream, openai_api, model_sessions, signin,
)  # fmt: skip
ROUTERS = tuple(module.router for module in _MODULES)
