"""The playground: chat with a run's checkpoint, also while it trains, in its environment with its tools."""

from __future__ import annotations

from fastapi.responses import StreamingResponse

from benchmax.errors import UsageError
from benchmax.platform.server.error_responses import Refused
from benchmax.platform.server.routes.parameters import Id
from benchmax.platform.server.security.authentication import Caller, Principal
from benchmax.platform.server.security.run_access import own_run
from benchmax.platform.server.server_services import Services
from benchmax.platform.server.services.event_response import STREAM, event_response
from benchmax.platform.server.services.live_sessions import encoded, session_events
from benchmax.platform.server.services.runs import checkpoints
from benchmax.platform.server.threads import Router
from benchmax.platform.store.queue import live_sessions
from benchmax.platform.store.queue.live_sessions import SessionFolder
from benchmax.platform.wire.base import Success
from benchmax.platform.wire.playground import Say, SessionInfo, SessionOpened, SessionRequest

router = Router(prefix="/v1/playground/sessions", tags=["playground"])


@router.post("", status_code=201)
def open_session(services: Services, caller: Caller, body: SessionRequest) -> SessionOpened:
    """Ask for a chat with a checkpoint; the runner opens it."""
    services.limiter.hit("session", caller.user_id)
    with own_run(services, body.run_id, caller) as (db, run):
        environment = body.environment and "env_cls_path" in run.blobs  # a supervised run has none
        if body.example_id and not environment:
            raise UsageError("An example is played in its environment. Leave exampleId out, or environment on.")
        if body.checkpoint != "base" and checkpoints.find(services.data.run(run.id), body.checkpoint) is None:
            raise UsageError(checkpoints.missing(services.data.run(run.id), "base"))
        caller.note(db, "playground.open", run.id, checkpoint=body.checkpoint)
    opened = services.live_sessions.for_chat(caller.user_id, body.model_dump() | {"environment": environment})
    return SessionOpened(id=opened.id, status=opened.status)


@router.get("/{session_id}")
def get_session(services: Services, caller: Caller, session_id: Id) -> SessionInfo:
    """A chat's status and, when it is ready, the system prompt and tools of its model."""
    folder = _own(services, caller, session_id)
    ready = folder.note("ready")
    return SessionInfo(
        id=folder.id,
        status=folder.status,
        status_reason=folder.reason,
        run_id=folder.asked["run_id"],
        checkpoint=folder.asked["checkpoint"],
        system_prompt=ready.get("system_prompt", ""),
        tools=ready.get("tools", []),
        prompt_messages=ready.get("prompt_messages", []),
    )


@router.delete("/{session_id}")
def end_session(services: Services, caller: Caller, session_id: Id) -> Success:
    """End a chat; the runner ends its processes."""
    _own(services, caller, session_id).ask_to_end("You ended it.")
    return Success(success=True, message="The session is ended.")


@router.post("/{session_id}/messages", response_class=StreamingResponse, responses=STREAM)
async def say(services: Services, caller: Caller, session_id: Id, body: Say) -> StreamingResponse:
    """Send a message: token…, message (assistant, tool)…, reward when there is a task, done; or error."""
    folder = _own(services, caller, session_id)
    if not body.content and not folder.asked.get("example_id"):
        raise UsageError("content is empty. Say something.")

    said = session_events(folder, {"do": "say", **body.model_dump()})
    return event_response(encoded(said, ("done", "error"), lambda words, _: {"event": "error", "message": words}))


def _own(services: Services, caller: Principal, session_id: str) -> SessionFolder:
    folder = live_sessions.find(services.data, session_id, caller.user_id)
    if folder is None or folder.asked.get("kind") != "chat":
        raise Refused(404, "There is no such session, or it has ended. Open another.")
    return folder
