"""The playground from Python and from the command line."""

import json

import pytest
import typer
from test_rollout_stream import GroupEnv
from typer.testing import CliRunner

from benchmax.cli.platform.playground import playground
from benchmax.platform.client import AsyncTrainerClient, TrainerClient
from benchmax.platform.exceptions import TrainerError
from benchmax.platform.store.queue import live_sessions
from benchmax.trainer.tiny_model import make_tiny
from session_world import store_run, supervised

pytestmark = pytest.mark.timeout(300)  # several processes for each test, on machines that do other things too

ROWS = [{"prompt": f"{n}?", "answer": str(n)} for n in range(16)]


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    with supervised(tmp_path_factory.mktemp("live")) as server:
        server.owner, server.key = server.user()
        model = make_tiny(tmp_path_factory.mktemp("model"), hidden=32, layers=1)
        server.run = store_run(server, server.owner, GroupEnv, ROWS, model=str(model))
        yield server


def open_sessions(live):
    return [each for each in live_sessions.every(live.data) if each.status != "ended"]


def test_a_session_in_python(live):
    with TrainerClient(live.key, live.url) as client:
        with client.run(live.run).playground("base") as session:
            assert session.wait()["status"] == "ready"
            events = list(session.say("Hello", max_tokens=5, seed=3))
            text = "".join(event["text"] for event in events if event["event"] == "token")
            assert [event["event"] for event in events][-2:] == ["message", "done"]
            assert events[-2]["message"]["content"] == text
            for _ in session.say("Again", max_tokens=400):
                break  # who stops listening stops the turn
            again = list(session.say("Hello again", max_tokens=5))
            assert again[-1]["event"] == "done"
            assert "sessions" not in repr(session)
        with pytest.raises(TrainerError, match="You ended it"):
            session.wait()
        with pytest.raises(TrainerError, match="You ended it"):
            list(session.say("Hello"))
        with pytest.raises(TrainerError, match="no such checkpoint"):
            client.run(live.run).playground()
    assert not open_sessions(live)


@pytest.mark.slow
async def test_a_session_in_async_code(live):
    async with (
        AsyncTrainerClient(live.key, live.url) as client,
        await client.playground(live.run, checkpoint="base", environment=False) as session,
    ):
        events = [event async for event in session.say("Hello", max_tokens=5)]
        assert events[-1]["event"] == "done"
        assert (await session.wait())["systemPrompt"] == ""
    assert not open_sessions(live)


def test_lines_of_stdin_are_turns(live, monkeypatch):
    monkeypatch.setenv("BENCHMAX_PLATFORM_URL", live.url)
    monkeypatch.setenv("BENCHMAX_API_KEY", live.key)
    app = typer.Typer()
    app.command()(playground)
    example = GroupEnv.dataset_preprocess(ROWS[0])["id"]
    words = [live.run, "--checkpoint", "base", "--max-tokens", "5", "--temperature", "0", "--example", example]
    plain = CliRunner().invoke(app, words, input="one\n\ntwo\n")
    assert plain.exit_code == 0, plain.output
    assert "base is ready; tools: none" in plain.stderr
    assert "user: 0?" in plain.stderr
    assert plain.stderr.count("reward: length") == 3
    told = CliRunner().invoke(app, [*words, "--json"], input="one\ntwo\n")
    events = [json.loads(line) for line in told.stdout.splitlines()]
    assert [event["event"] for event in events if event["event"] != "token"] == ["message", "reward", "done"] * 3
    replies = [event["message"]["content"] for event in events if event["event"] == "message"]
    assert plain.stdout.splitlines() == [line for reply in replies for line in reply.splitlines()]
    assert not open_sessions(live)
