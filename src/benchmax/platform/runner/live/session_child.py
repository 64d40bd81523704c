"""The process of one live session: `python -m benchmax.platform.runner.live.session_child FOLDER`.

It opens the environment in a process of its own, and a model when the session is a chat, and then answers at a socket
in its folder: one request a connection, answered with one JSON object a line. A client that hangs up cancels its work.
Only clients that know the token in ready.json are answered; an unused session ends by itself.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import os
import secrets
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, closing, suppress
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from benchmax.envs.datasets.readers import read_rows
from benchmax.envs.types import ChatMessage, Example
from benchmax.errors import NotFoundError
from benchmax.files.redaction import Redactor, hide_texts
from benchmax.platform.runner.children.child_process import ChildProcess, main, write_log
from benchmax.platform.runner.children.run_environment import opened_env
from benchmax.platform.runner.children.train_child import loading_text, train_config
from benchmax.platform.store.queue.live_sessions import MESSAGE_BYTES, SOCKET, SessionFolder

ENDED = "It was ended."
REQUEST_SECONDS = 30.0
"""For a request to arrive whole."""
COMPARED_ROWS = 8
"""Rows read to find what all prompts of an environment have in common."""

DATASETS = ("eval_dataset_path", "train_dataset_path")
"""The files of a run's examples, the held-out ones first."""

Send = Callable[[Mapping[str, Any]], None]


class Handler(Protocol):
    """Answers the requests of one kind of session."""

    def about(self) -> dict[str, Any]: ...

    async def answer(self, request: Mapping[str, Any], send: Send) -> None: ...


async def serve(child: ChildProcess) -> str:
    """Open the environment or model, and answer requests until none has come for a while."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    handlers = {"rollout": _rollout_handler, "chat": _chat_handler, "model": _model_handler}
    try:
        async with handlers[child.launch["kind"]](child) as handler:
            listener = Listener(SessionFolder(child.folder), handler, Redactor(child.variables.values()))
            child.say("ready")
            return await listener.serve(float(child.launch["idle_seconds"]))
    except asyncio.CancelledError:
        return ENDED


@asynccontextmanager
async def _rollout_handler(child: ChildProcess) -> AsyncIterator[Handler]:
    from benchmax.platform.runner.live.rollouts import Rollouts
    from benchmax.rollouts.host import EnvHost

    async with opened_env(child) as env, EnvHost(env) as host, aclosing(Rollouts(host, env)) as handler:
        yield handler


@asynccontextmanager
async def _model_handler(child: ChildProcess) -> AsyncIterator[Handler]:
    from benchmax.platform.runner.live.models import Completions, load_local

    name = child.launch["model"]
    child.say(loading_text(name))
    async with await asyncio.to_thread(load_local, name) as model:
        yield Completions(model)


@asynccontextmanager
async def _chat_handler(child: ChildProcess) -> AsyncIterator[Handler]:
    from benchmax.platform.runner.live.chat import Chat, NoEnv
    from benchmax.platform.runner.live.models import load_checkpoint, lower_priority
    from benchmax.rollouts.host import EnvHost

    lower_priority()
    launch, run_dir = child.launch, Path(child.launch["run_dir"])
    base = train_config(run_dir, launch["args"], 1).model.name
    child.say("loading the model")
    model = await asyncio.to_thread(load_checkpoint, run_dir, launch["checkpoint"], base)
    async with model:
        if not launch["environment"]:
            async with EnvHost(NoEnv) as host, Chat.open(host, model, None) as chat:
                yield chat
            return
        async with opened_env(child) as env, EnvHost(env) as host:
            files = [file for name in DATASETS if (file := child.files.get(name)) and file.stat().st_size]
            example = await _example(env, files, launch.get("example_id"))
            async with Chat.open(host, model, example, await _shown(env, files)) as chat:
                yield chat


async def _shown(env: Any, files: Sequence[Path]) -> list[ChatMessage]:
    """The turns with which all of the run's prompts begin, by its first rows."""
    from benchmax.platform.runner.live.chat import shared_turns

    if not files:
        return []
    rows = [row.data for row in islice(read_rows(files[0]), COMPARED_ROWS) if row.fault is None]
    return shared_turns([example["prompt_messages"] for example in await env.preprocess(rows, lenient=True)])


async def _example(env: Any, files: Sequence[Path], example_id: str | None) -> Example | None:
    """The example of that id, of the held-out rows or of those trained on."""
    if not example_id:
        return None
    for file in files:
        for example in await env.preprocess(file, lenient=True):
            if example["id"] == example_id:
                found: Example = example
                return found
    raise NotFoundError(f"The run has no example {example_id!r}. Take the id of one of its rollouts.")


class Listener:
    """Answers clients that know the token, one request a connection."""

    def __init__(self, folder: SessionFolder, handler: Handler, hide: Redactor) -> None:
        self._folder = folder
        self._handler = handler
        self._hide = hide
        self._token = secrets.token_urlsafe(32)
        self._busy = 0
        self._since = time.monotonic()

    async def serve(self, idle_seconds: float) -> str:
        """Answer until nothing was asked for `idle_seconds`."""
        with closing(self._bind()) as listener:
            server = await asyncio.start_unix_server(self._answer, sock=listener, limit=MESSAGE_BYTES)
            async with server:
                self._write_activity()
                self._folder.write("ready", {"token": self._token, "pid": os.getpid(), **self._handler.about()})
                while self._busy or time.monotonic() - self._since < idle_seconds:  # noqa: ASYNC110
                    await asyncio.sleep(min(1.0, idle_seconds / 4))
        return f"Nobody used it for {idle_seconds:g} s."

    def _bind(self) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX)
        (self._folder.path / SOCKET).unlink(missing_ok=True)
        with self._folder.socket_path() as path:
            listener.bind(path)
        (self._folder.path / SOCKET).chmod(0o600)
        listener.listen(64)
        listener.setblocking(False)
        return listener

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._busy += 1
        self._write_activity()
        try:
            request = await self._request(reader)
            if request is not None:
                await self._work(request, reader, lambda event: writer.write(self._line(event)))
                await writer.drain()
        except (OSError, ValueError, TimeoutError, asyncio.IncompleteReadError) as error:
            write_log(f"a request failed: {type(error).__name__}: {error}")
        finally:
            self._busy -= 1
            self._since = time.monotonic()
            self._write_activity()
            writer.close()

    async def _request(self, reader: asyncio.StreamReader) -> dict[str, Any] | None:
        line = await asyncio.wait_for(reader.readline(), REQUEST_SECONDS)
        request = json.loads(line) if line else None
        if not isinstance(request, dict):
            return None
        given = str(request.pop("token", ""))
        return request if hmac.compare_digest(given.encode(), self._token.encode()) else None

    async def _work(self, request: Mapping[str, Any], reader: asyncio.StreamReader, send: Send) -> None:
        """Answer a request, unless the client hangs up before."""
        work = asyncio.create_task(self._handler.answer(request, send))
        gone = asyncio.create_task(reader.read(1))
        try:
            await asyncio.wait([work, gone], return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            if not work.done():
                work.cancel()
            with suppress(asyncio.CancelledError):
                await work

    def _line(self, event: Mapping[str, Any]) -> bytes:
        text = json.dumps(hide_texts(event, self._hide), ensure_ascii=False, default=str)
        return text.encode("utf-8", "replace") + b"\n"

    def _write_activity(self) -> None:
        with suppress(
            OSError
        ):  # a full disk: requests are answered, and the session ends when it is idle, all the same
            self._folder.write("activity", {"busy": self._busy, "since": time.time()})


if __name__ == "__main__":
    main(serve)
