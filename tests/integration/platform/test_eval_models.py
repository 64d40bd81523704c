"""Evaluations of what was not trained: the base model, and endpoints named in settings."""

import socket

import pytest
from test_rollout_stream import GroupEnv, counting

from benchmax.platform.store.queue import jobs
from benchmax.platform.store.tables import Endpoint
from benchmax.trainer.tiny_model import make_tiny
from living import content, files_under
from platform_world import LiveServer
from runner_world import wait_until
from session_world import CounterEnv, fake_model, store_run, supervised

pytestmark = pytest.mark.timeout(300)  # several processes for each test, on machines that do other things too

ROWS = [{"prompt": f"Count to one, {n}.", "answer": "count 1"} for n in range(16)]


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    with supervised(tmp_path_factory.mktemp("live")) as server:
        yield server


def evaluated(client, run_id, model, **more):
    """Start one and wait for its end."""
    answer = client.post(f"/v1/train/runs/{run_id}/external-eval", json={"model": model, **more})
    assert answer.status_code == 201, answer.text

    def found():
        evals = client.get(f"/v1/train/runs/{run_id}/external-eval").json()["evals"]
        (row,) = [each for each in evals if each["id"] == answer.json()["id"]]
        return row if row["endedAt"] else None

    return wait_until(found, 150)


def test_an_endpoint_plays_the_eval_rows_with_its_own_key(live):
    owner, key = live.user()
    run_id = store_run(live, owner, CounterEnv, ROWS)
    with fake_model(counting) as model, live.client(key) as client:
        asked = {"name": "theirs", "baseUrl": model.base_url, "model": "gpt-x", "apiKey": "sk-endpoint"}
        endpoint = client.post("/v1/endpoints", json=asked).json()["id"]
        row = evaluated(client, run_id, f"endpoint:{endpoint}", rows=5, samples=2)
        assert (row["status"], row["done"], row["total"]) == ("complete", 10, 10), row
        assert row["summary"]["rollouts"] == 10
        assert {each["model"] for each in model.bodies} == {"gpt-x"}
        assert {each["Authorization"] for each in model.headers} == {"Bearer sk-endpoint"}
        asked = {"mode": "external-eval", "externalEvalId": row["id"], "limit": 50}
        page = client.get(f"/v1/train/runs/{run_id}/rollouts", params=asked).json()
        found = page["data"] if isinstance(page, dict) else page
        assert len(found) == 10
        assert all(each["rewards"] == {"said": 1.0, "count": 1.0} for each in found)
    notes = [path for path in files_under(live.data.run(run_id)) if not path.name.startswith("env-cls")]
    assert not any(b"sk-endpoint" in content(path) for path in notes)


def stored_endpoint(live, owner, url):
    with live.database.write() as session:
        row = Endpoint(owner_id=owner, name=url, base_url=url, model="m")
        session.add(row)
        session.flush()
        return row.id


def test_an_address_that_may_not_be_called_fails_with_words(live):
    owner, key = live.user()
    run_id = store_run(live, owner, GroupEnv, ROWS)
    with live.client(key) as client:
        # By a platform that might still call it then.
        endpoint = stored_endpoint(live, owner, "http://[::ffff:169.254.169.254]/v1")
        row = evaluated(client, run_id, f"endpoint:{endpoint}", rows=1)
        assert row["status"] == "failed"
        assert "may not be called" in row["statusReason"]


@pytest.mark.slow
def test_an_evaluation_without_a_single_score_fails_with_the_reason(live):
    owner, key = live.user()
    run_id = store_run(live, owner, GroupEnv, ROWS)
    with socket.socket() as silent, live.client(key) as client:
        silent.bind(("127.0.0.1", 0))  # it is taken, and nobody listens
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        endpoint = client.post("/v1/endpoints", json={"name": "down", "baseUrl": url, "model": "m"}).json()["id"]
        row = evaluated(client, run_id, f"endpoint:{endpoint}", rows=2)
        assert row["status"] == "failed", row
        assert row["statusReason"].startswith("None of the 2 rollouts got a score. The most common reason: ")
        assert "onnect" in row["statusReason"]


def test_only_models_of_this_machine_wait_for_a_slot(tmp_path):
    with LiveServer(tmp_path) as server:
        owner, key = server.user()
        run_id = store_run(server, owner, GroupEnv, ROWS)
        with server.client(key) as client:
            asked = {"name": "theirs", "baseUrl": "http://127.0.0.1:9/v1", "model": "m"}
            endpoint = client.post("/v1/endpoints", json=asked).json()["id"]
            for model in ("base", f"endpoint:{endpoint}"):
                row = client.post(f"/v1/train/runs/{run_id}/external-eval", json={"model": model}).json()
                assert (row["status"], row["statusReason"]) == ("pending", "waiting for a free slot")
        with server.database.read() as session:
            assert [job.slots for job in jobs.of_run(session, run_id) if job.kind == "eval"] == [1, 0]


def test_the_base_model_is_the_one_the_run_began_with(live, tmp_path):
    owner, key = live.user()
    model = make_tiny(tmp_path / "model", hidden=32, layers=1)
    run_id = store_run(live, owner, GroupEnv, ROWS, model=str(model), max_new_tokens=4)
    with live.client(key) as client:
        row = evaluated(client, run_id, "base", rows=3)
        assert (row["status"], row["done"]) == ("complete", 3), row
