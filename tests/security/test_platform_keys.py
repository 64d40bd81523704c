"""A key of the platform reaches the platform and nobody else, whichever way it is handed in."""

import base64

import pytest

from benchmax.platform.store.accounts import api_keys
from session_world import CounterEnv, bundled, fake_model


@pytest.fixture
def owner(live):
    return live.user("keys@example.org")


@pytest.fixture
def elsewhere():
    with fake_model("ok") as server:
        yield server


def rollout(llm):
    env = {name: base64.b64encode(value).decode() for name, value in bundled(CounterEnv).items()}
    return {"raw_example": {"prompt": "?", "answer": "!"}, "env": env, "llm": llm}


@pytest.mark.parametrize("form", ["{key}", " {key}\t", "Bearer {key}", "x{key}x", "{revoked}", "{anothers}"])
def test_a_key_is_not_forwarded_with_a_rollout(live, owner, elsewhere, form):
    user_id, key = owner
    with live.database.write() as session:
        row, revoked = api_keys.create_key(session, user_id)
        api_keys.revoke_key(session, user_id, row.id)
    given = form.format(key=key, revoked=revoked, anothers=live.user("other@example.org")[1])
    llm = {"base_url": elsewhere.base_url, "model": "m", "api_key": given}
    with live.client(key) as client:
        for path in ("/v1/rollout/stream", "/v1/rollout/batch/stream", "/rollout/stream"):
            body = rollout(llm) | ({"dataset_bytes": base64.b64encode(b"{}").decode()} if "batch" in path else {})
            answer = client.post(path, json=body)
            assert answer.status_code == 400, answer.text
            assert "this platform's own and is not sent to 127.0.0.1" in answer.json()["error"]
            assert key not in answer.text
    assert elsewhere.requests == 0


def test_a_key_is_not_hidden_in_an_address(live, owner, elsewhere):
    llm = {"base_url": f"{elsewhere.base_url}?k={owner[1]}", "model": "m"}
    with live.client(owner[1]) as client:
        assert client.post("/v1/rollout/stream", json=rollout(llm)).status_code == 400
    assert elsewhere.requests == 0


def test_an_endpoint_takes_no_key_of_the_platform_and_not_the_platform_itself(live, owner, elsewhere):
    made = {"name": "e", "baseUrl": elsewhere.base_url, "model": "m"}
    with live.client(owner[1]) as client:
        refused = client.post("/v1/endpoints", json=made | {"apiKey": owner[1]})
        assert (refused.status_code, "platform's own" in refused.json()["error"]) == (400, True)
        itself = client.post("/v1/endpoints", json=made | {"baseUrl": f"{live.url}/v1"})
        assert (itself.status_code, "own address" in itself.json()["error"]) == (400, True)
        assert client.get("/v1/endpoints").json() == {"endpoints": []}


def test_an_endpoint_of_before_with_such_a_key_is_not_called(live, owner, elsewhere):
    """Stored when nobody looked."""
    from benchmax.platform.store.tables import Endpoint

    user_id, key = owner
    vault = live.app.state.services.vault
    with live.database.write() as session:
        row = Endpoint(owner_id=user_id, name="old", base_url=elsewhere.base_url, model="m")
        session.add(row)
        session.flush()
        row.secret_id = vault.put(session, user_id, "api_key", key, row.id).id
    with live.client(key) as client:
        answer = client.post("/v1/chat/completions", json={"model": "old", "messages": [{"role": "user"}]})
        assert answer.status_code == 400
        assert "platform's own" in answer.json()["error"]["message"]
    assert elsewhere.requests == 0
