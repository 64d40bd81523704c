"""The async clients: the same methods as the blocking ones, on connections of their own."""

from __future__ import annotations

import asyncio
import inspect
import json
import socket
from contextlib import suppress

import pytest

from benchmax.errors import ConfigError
from benchmax.platform import client as clients
from benchmax.platform.exceptions import JobLaunchError, TrainerError
from benchmax.platform.sdk.playground import AsyncPlaygroundSession, PlaygroundSession
from benchmax.platform.sdk.run import AsyncTrainingRun, TrainingRun

PAIRS = [
    (clients.TrainerClient, clients.AsyncTrainerClient),
    (clients.StorageClient, clients.AsyncStorageClient),
    (clients.RolloutClient, clients.AsyncRolloutClient),
    (TrainingRun, AsyncTrainingRun),
    (PlaygroundSession, AsyncPlaygroundSession),
]


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")} - {"close", "aclose", "open"}


@pytest.mark.parametrize(("blocking", "other"), PAIRS)
def test_both_kinds_of_a_client_have_the_same_methods(blocking, other):
    assert public(blocking) == public(other)
    for name in public(blocking):
        plain, twin = getattr(blocking, name), getattr(other, name)
        if isinstance(twin, property):
            continue
        assert inspect.iscoroutinefunction(twin) or inspect.isasyncgenfunction(twin), name
        if not isinstance(plain, property):
            assert list(inspect.signature(plain).parameters) == list(inspect.signature(twin).parameters), name
            assert inspect.isasyncgenfunction(twin) == inspect.isgeneratorfunction(plain), name


class Platform:
    """A server of a few lines on this loop: it answers each request with the next of what it was given."""

    def __init__(self, *answers: tuple[int, bytes], stream: bool = False) -> None:
        self.answers = list(answers)
        self.stream = stream
        self.seen: list[str] = []
        self.left = asyncio.Event()

    async def __aenter__(self) -> str:
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        return f"http://127.0.0.1:{self.server.sockets[0].getsockname()[1]}"

    async def __aexit__(self, *_) -> None:
        self.server.close()
        await self.left.wait()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):  # the client is gone
            while True:
                await self.answer(await reader.readuntil(b"\r\n\r\n"), reader, writer)
        writer.close()
        self.left.set()

    async def answer(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines = head.decode().lower().split("\r\n")
        self.seen.append(head.decode().split("\r\n")[0])
        await reader.readexactly(sum(int(line.split(":")[1]) for line in lines if line.startswith("content-length")))
        status, body = self.answers.pop(0)
        sized = b"" if self.stream else b"content-length: %d\r\n" % len(body)
        writer.write(b"HTTP/1.1 %d x\r\ncontent-type: text/event-stream\r\n%s\r\n%s" % (status, sized, body))
        await writer.drain()


async def test_who_leaves_a_stream_closes_its_connection():
    platform = Platform((200, b'data: {"event": "token", "text": "a"}\n\n'), stream=True)
    async with platform as url, clients.AsyncTrainerClient("sk_x", url) as trainer:
        turn = AsyncPlaygroundSession(trainer, "ses_1").say("Hello")
        assert (await anext(turn))["text"] == "a"
        await turn.aclose()
        await asyncio.wait_for(platform.left.wait(), 30)
    assert platform.seen == ["POST /v1/playground/sessions/ses_1/messages HTTP/1.1"]


async def test_a_get_is_tried_again_and_nothing_else_is(monkeypatch):
    monkeypatch.setattr("benchmax.platform.sdk.transport.retries.pause", lambda *_, **__: 0.0)
    platform = Platform((503, b"{}"), (200, b'{"id": "run_1"}'), (503, b'{"error": "busy"}'))
    async with platform as url, clients.AsyncTrainerClient("sk_x", url) as trainer:
        assert (await trainer.get_run("run_1", include_config=True))["id"] == "run_1"
        with pytest.raises(TrainerError, match="busy") as refused:
            await trainer.cancel_run("run_1")
    assert refused.value.status_code == 503
    assert [line.split()[0] for line in platform.seen] == ["GET", "GET", "POST"]
    assert platform.seen[0].split()[1] == "/v1/train/runs/run_1?includeConfig=true"


async def test_what_takes_several_requests_is_done_in_order_and_raises_its_own_errors():
    first = {"runs": [{"id": f"run_{number}"} for number in range(1000)]}
    answers = [(200, json.dumps(each).encode()) for each in (first, {"runs": [{"id": "run_1000"}]})]
    platform = Platform(*answers, (422, b'{"error": "no rows"}'))
    paths = dict.fromkeys(("env_cls_path", "env_metadata_path", "train_dataset_path", "eval_dataset_path"), "x")
    async with platform as url, clients.AsyncTrainerClient("sk_x", url) as trainer:
        assert len(await trainer.list_runs()) == 1001
        with pytest.raises(JobLaunchError, match="no rows"):
            await trainer.queue_run("simple", **paths)
    assert platform.seen[1].split()[1] == "/v1/train/runs?offset=1000"


async def test_a_closed_client_says_so():
    trainer = clients.AsyncTrainerClient("sk_x", "http://127.0.0.1:9")
    await trainer.aclose()
    with pytest.raises(TrainerError, match="This client cannot be used"):
        await trainer.get_run("run_1")
    with pytest.raises(TrainerError, match="This client cannot be used"):
        await anext(trainer.stream_run("run_1"))


def test_a_client_of_another_loop_says_so():
    """Its connections, which the first loop opened, cannot be used on a second one."""

    async def read(trainer: clients.AsyncTrainerClient) -> object:
        return await trainer.get_run("run_1")

    platform = Platform((200, b'{"id": "run_1"}'), (200, b'{"id": "run_1"}'))
    with asyncio.Runner() as one, asyncio.Runner() as other:
        trainer = clients.AsyncTrainerClient("sk_x", one.run(platform.__aenter__()))
        assert one.run(read(trainer)) == {"id": "run_1"}
        with pytest.raises(TrainerError, match="Make one for each event loop"):
            other.run(read(trainer))
        one.run(trainer.aclose())
        one.run(platform.__aexit__())


async def test_a_server_that_is_silent_is_said_to_be():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        async with clients.AsyncTrainerClient("sk_x", url, timeout=0.2) as trainer:
            with pytest.raises(TrainerError, match="did not answer in time"):
                await trainer.cancel_run("run_1")


@pytest.mark.parametrize("timeout", [0, -1, "x", None])
@pytest.mark.parametrize("kind", [clients.TrainerClient, clients.AsyncTrainerClient])
def test_a_timeout_that_is_none_is_refused(kind, timeout):
    with pytest.raises(ConfigError, match="Give a number of seconds above 0"):
        kind("sk_x", "http://127.0.0.1:9", timeout=timeout)
