"""A client that knows only the published wire API: it uploads, launches, follows, reads rollouts and cancels.

Nothing of benchmax is imported by the client below; rows that a runner would write are put in through the store.
"""

from __future__ import annotations

import json
import pickle
import sys

import httpx2
import pytest

from platform_world import LiveServer, fresh_database

MODES = ("train", "eval")
SECONDS = 60
"""For an answer; only a machine that does other things too is so slow."""


class WireClient:
    """Written from the contract alone."""

    def __init__(self, url: str, key: str) -> None:
        self.http = httpx2.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=SECONDS)
        self.url = url

    def get(self, route, expect=200, /, **params):
        answer = self.http.get(route, params=params)
        assert answer.status_code == expect, answer.text
        return answer.json()

    def upload(self, path: str, content: bytes, mime: str) -> str:
        permit = self.get("/v1/storage/upload-url", path=path, mimeType=mime, expiresInMinutes=5)
        assert set(permit) == {"uploadUrl", "expiresAt", "blobPath", "willOverwrite"}
        headers = {"Content-Type": mime, "x-ms-blob-type": "BlockBlob"}
        put = httpx2.put(permit["uploadUrl"], content=content, headers=headers, timeout=SECONDS)
        assert put.status_code in (200, 201), put.text
        return permit["blobPath"]

    def launch(self, args, expect=(200, 201, 202), **body):
        answer = self.http.post("/v1/train/runs/launch", json={"name": "wire run", "args": args, **body})
        assert answer.status_code in expect, answer.text
        return answer.json()


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def live(request, tmp_path_factory):
    """A server on each database."""
    url = fresh_database(request.getfixturevalue("postgres_url")) if request.param == "postgres" else None
    with LiveServer(tmp_path_factory.mktemp("wire"), database_url=url) as server:
        yield server


@pytest.fixture(scope="module")
def owner(live):
    return live.user("owner@example.org")


@pytest.fixture(scope="module")
def wire(live, owner):
    client = WireClient(live.url, owner[1])
    yield client
    client.http.close()


def rows(count):
    lines = [json.dumps({"prompt": f"{n} + 1?", "ground_truth": str(n + 1)}) for n in range(count)]
    return ("\n".join(lines) + "\n").encode()


@pytest.fixture(scope="module")
def paths(wire):
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    manifest = {"pip_dependencies": [], "python_version": version, "benchmax_version": "0.1", "env_class_source": None}
    return {
        "env_cls_path": wire.upload(
            "envs/w/0123456789abcdef/env-cls.pkl", pickle.dumps(("never opened here", {})), "application/octet-stream"
        ),
        "env_metadata_path": wire.upload(
            "envs/w/0123456789abcdef/env-metadata.json", json.dumps(manifest).encode(), "application/json"
        ),
        "train_dataset_path": wire.upload("datasets/w/01234567/train.jsonl", rows(20), "application/jsonl"),
        "eval_dataset_path": wire.upload("datasets/w/01234567/eval.jsonl", rows(4), "application/jsonl"),
    }


@pytest.fixture(scope="module")
def run_id(live, wire, paths):
    """A run with two steps of metrics and rollouts, as a runner would have left it."""
    launched = wire.launch({**paths, "num_epochs": 1}, type="simple")
    run = launched["runId"]
    assert isinstance(run, str)
    assert any("recommended" in warning for warning in launched["warnings"])
    fill(live, run)
    return run


def fill(live, run):
    from benchmax.envs.types import Transcript
    from benchmax.platform.store.runs import evals, rollouts, runs
    from benchmax.platform.store.runs import metrics as points
    from benchmax.rollouts.record import Failure, LogLine, Rollout

    folder = live.data.run(run) / "rollouts"
    folder.mkdir(parents=True)
    with live.database.write() as session:
        other = evals.create(session, run, model="base", name="base model")
        runs.set_status(session, run, "active", "training")
        runs.set_progress(session, run, step=1)
        runs.add_errors(session, run, 1)
        for mode in MODES:
            for step in (0, 1):
                values = {"reward/mean": 0.5 * step, "reward_stats/correct/reward/mean": 0.5}
                points.record(session, run, [points.MetricLine(step, mode, 1.0, values)])
        for mode, eval_id in (("eval", ""), ("external-eval", other.id)):
            for step in (0, 1):
                offset, name = 0, f"rollouts/{mode}-{step}.jsonl"
                with open(live.data.run(run) / name, "wb") as file:
                    for example in range(3):
                        failed = (step, example) == (1, 2)
                        record = Rollout(
                            id=f"{mode}-{step}-{example}",
                            example_id=f"{example}" * 64,
                            split="eval",
                            step=step,
                            messages=Transcript(
                                [
                                    {"role": "user", "content": f"{example} + 1?"},
                                    {"role": "assistant", "content": f"<answer>{example}</answer>"},
                                ],
                                1,
                            ),
                            task={"ground_truth": str(example + 1)},
                            rewards={} if failed else {"correct": float(step)},
                            reward=None if failed else float(step),
                            error=Failure("RewardError", "no") if failed else None,
                            logs=[LogLine("INFO", "scored", 0.1)],
                        ).to_dict()
                        line = json.dumps(record).encode() + b"\n"
                        file.write(line)
                        row = rollouts.row_of(
                            record, file=name, offset=offset, length=len(line), split=mode, eval_id=eval_id
                        )
                        rollouts.index(session, run, [row])
                        rollouts.add_logs(session, run, rollouts.logs_of(record))
                        offset += len(line)


def test_an_upload_address_works_once_and_says_what_it_replaces(live, wire):
    permit = wire.get("/v1/storage/upload-url", path="datasets/x/a.jsonl", mimeType="application/jsonl")
    assert permit["willOverwrite"] is False
    assert httpx2.put(permit["uploadUrl"], content=b"{}\n", timeout=SECONDS).status_code == 201
    again = httpx2.put(permit["uploadUrl"], content=b"other", timeout=SECONDS)
    assert again.status_code == 403
    assert "error" in again.json()
    permit = wire.get("/v1/storage/upload-url", path="datasets/x/a.jsonl", mimeType="application/jsonl")
    assert permit["willOverwrite"] is True
    wire.get("/v1/storage/upload-url", 400, path="datasets/x/a.exe", mimeType="x")
    wire.get("/v1/storage/upload-url", 400, mimeType="x")


def test_launch_args_have_the_published_fields(wire):
    args = {arg["name"]: arg for arg in wire.get("/v1/train/launch-args")["args"]}
    fields = {"name", "label", "type", "required", "description", "default", "min", "max", "warnAbove", "enum"}
    assert all(set(arg) == fields for arg in args.values())
    assert {"model", "learning_rate", "num_epochs", "group_size", "lora_rank", "lora_alpha", "max_turns"} <= set(args)
    assert args["max_rollout_len"]["warnAbove"] == 16_384
    assert {arg["type"] for arg in args.values()} <= {"string", "number", "integer", "boolean"}
    assert args["model"]["default"] in args["model"]["enum"]


@pytest.mark.parametrize(
    ("change", "status", "words"),
    [
        ({"train_dataset_path": "datasets/none/train.jsonl"}, 404, "no upload at"),
        ({"train_dataset_path": None}, 400, "train_dataset_path is missing"),
        ({"num_epoch": 1}, 400, "did you mean num_epochs?"),
        ({"group_size": 1}, 400, "group_size must be from 2 to 256"),
        ({"group_size": 2.5}, 400, "whole number"),
        ({"group_size": "8"}, 400, "whole number"),
        ({"global_batch_size": 8}, 400, "set by the server"),
        ({"max_response_len": 8}, 400, "set by the server"),
        ({"model": "gpt-5"}, 400, "must be one of"),
    ],
)
def test_launches_that_cannot_work_are_refused_in_words(wire, paths, change, status, words):
    assert words in wire.launch({**paths, **change}, (status,))["error"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"args": ', "The body is not JSON"),
        (b"[]", "not a JSON object"),
        (b"", "not a JSON object"),
        (json.dumps({"name": "x" * 301, "args": {}}).encode(), "name: has a length of 301; at most 300 is taken"),
    ],
)
def test_a_body_that_cannot_be_read_is_refused_in_words(wire, body, words):
    answer = wire.http.post("/v1/train/runs/launch", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    assert words in answer.json()["error"]


def test_an_argument_that_is_null_was_not_given(wire, paths):
    run_id = wire.launch({**paths, "num_epochs": None, "prompts_per_step": None, "group_size": 4})["runId"]
    defaults = {arg["name"]: arg["default"] for arg in wire.get("/v1/train/launch-args")["args"]}
    args = wire.get(f"/v1/train/runs/{run_id}", includeConfig="true")["launcherArgs"]
    assert [args[name] for name in ("num_epochs", "group_size")] == [defaults["num_epochs"], 4]


def test_too_few_rows_and_another_python_are_refused(wire, paths):
    few = wire.upload("datasets/w/few/train.jsonl", rows(15) + b"\n  \n", "application/jsonl")
    assert (
        "at least 16 training rows; there are 15" in wire.launch({**paths, "train_dataset_path": few}, (400,))["error"]
    )
    enough = wire.upload("datasets/w/few/train.jsonl", rows(16).rstrip(), "application/jsonl")
    assert wire.launch({**paths, "train_dataset_path": enough})["runId"]
    old = wire.upload("envs/w/old/env-metadata.json", b'{"python_version": "3.99"}', "application/json")
    assert "bundled with Python 3.99" in wire.launch({**paths, "env_metadata_path": old}, (400,))["error"]
    bad = wire.upload("envs/w/bad/env-metadata.json", b"\x80\x04pickle", "application/json")
    assert "not JSON" in wire.launch({**paths, "env_metadata_path": bad}, (400,))["error"]
    assert "did you mean" in wire.launch(paths, (400,), type="simpel")["error"].lower()


def test_a_csv_dataset_counts_its_rows(wire, paths):
    text = "prompt,ground_truth\n" + "".join(f'"what, {n}?",{n}\n' for n in range(16))
    path = wire.upload("datasets/w/csv/train.csv", text.encode(), "text/csv")
    assert wire.launch({**paths, "train_dataset_path": path})["runId"]


def test_a_run_is_listed_and_shown(wire, run_id):
    listed = {run["id"]: run for run in wire.get("/v1/train/runs")}
    run = listed[run_id]
    fields = "id name status createdAt updatedAt isPublic isOwner hasLauncherJob totalSteps latestActivityMessage"
    assert set(fields.split()) <= set(run)
    assert (run["name"], run["status"], run["isOwner"], run["hasLauncherJob"]) == ("wire run", "active", True, True)
    assert run["launcherArgs"] is None
    configured = {run["id"]: run for run in wire.get("/v1/train/runs", includeConfig="true")}[run_id]
    assert configured["launcherArgs"]["num_epochs"] == 1
    assert wire.get(f"/v1/train/runs/{run_id}")["id"] == run_id
    details = wire.get(f"/v1/train/runs/{run_id}/details")
    assert details["latestStep"] == 1
    assert details["modes"] == ["eval", "external-eval", "train"]
    assert details["errorCount"] == 1
    wire.get("/v1/train/runs/run_nothing", 404)


def test_events_come_oldest_first(wire, run_id):
    events = wire.get(f"/v1/train/runs/{run_id}/events")["events"]
    assert [event["type"] for event in events] == ["training.pending", "training.active"]
    assert events[0]["category"] == "lifecycle"


def test_scalars_need_a_mode_and_an_unknown_one_is_empty(wire, run_id):
    scalars = wire.get(f"/v1/train/runs/{run_id}/scalars", mode="train")
    assert scalars["reward/mean"] == [{"step": 0, "value": 0.0}, {"step": 1, "value": 0.5}]
    assert "reward_stats/correct/reward/mean" in scalars
    assert wire.get(f"/v1/train/runs/{run_id}/scalars", mode="nothing") == {}
    assert "mode" in wire.get(f"/v1/train/runs/{run_id}/scalars", 400)["error"]


def test_environment_logs_of_all_and_of_one_rollout(wire, run_id):
    logs = wire.get(f"/v1/train/runs/{run_id}/environment-logs")["logs"]
    assert len(logs) == 14
    of_one = wire.get(f"/v1/train/runs/{run_id}/environment-logs", rolloutId="eval-1-2")["logs"]
    assert [(log["level"], log["message"]) for log in of_one] == [("INFO", "scored"), ("ERROR", "RewardError: no")]
    assert all(log["content"] == log["message"] for log in logs), "published clients print `content`"


def test_environment_logs_go_on_from_a_cursor(wire, run_id):
    address = f"/v1/train/runs/{run_id}/environment-logs"
    whole = wire.get(address)
    assert (whole["nextCursor"], whole["cursor"]) == (None, str(whole["logs"][-1]["id"]))
    first = wire.get(address, limit=10)
    rest = wire.get(address, limit=10, cursor=first["nextCursor"])
    assert [*first["logs"], *rest["logs"]] == whole["logs"]
    assert rest["nextCursor"] is None
    later = wire.get(address, cursor=whole["cursor"])
    assert (later["logs"], later["cursor"]) == ([], whole["cursor"]), "nothing came since"


def test_rollouts_summary_heatmap_details_and_averages(wire, run_id):
    base = f"/v1/train/runs/{run_id}/rollouts"
    summary = wire.get(f"{base}/summary", mode="eval", page=1, limit=2)
    assert [group["promptText"] for group in summary["data"]] == ["0 + 1?", "1 + 1?"]
    assert summary["data"][0]["rewardHistory"] == [{"step": 0, "meanReward": 0.0}, {"step": 1, "meanReward": 1.0}]
    assert summary["total"] == 3
    assert len(wire.get(f"{base}/summary", mode="eval", page=2, limit=2)["data"]) == 1
    example = summary["data"][0]["promptMessageId"]
    cells = wire.get(f"{base}/heatmap", promptMessageId=example, mode="eval")
    assert [(cell["step"], cell["totalReward"]) for cell in cells] == [(0, 0.0), (1, 1.0)]
    details = wire.get(f"{base}/{cells[1]['id']}/details")
    assert details["promptMessages"] == [{"role": "user", "content": "0 + 1?"}]
    assert details["messages"] == [{"role": "assistant", "content": "<answer>0</answer>"}]
    assert details["rewards"] == [{"name": "correct", "value": 1.0}]
    assert (details["totalReward"], details["step"]) == (1.0, 1)
    assert details["task"] == {"ground_truth": "1"}
    assert wire.get(f"{base}/mode-average", mode="eval")["avg"] == pytest.approx(0.4)
    assert wire.get(f"{base}/component-averages", mode="eval") == {"correct": 1.0}
    assert wire.get(f"{base}/component-averages", mode="nothing") is None
    wire.get(f"{base}/nothing/details", 404)
    wire.get(f"{base}/heatmap", 400, mode="eval")


def test_external_evals_and_comparison(wire, run_id):
    evals = wire.get(f"/v1/train/runs/{run_id}/external-eval")["evals"]
    assert [each["name"] for each in evals] == ["base model"]
    base = f"/v1/train/runs/{run_id}/rollouts"
    compared = wire.get(f"{base}/comparison", externalEvalId=evals[0]["id"], page=1, limit=2)
    assert [group["rollouts"][0]["id"] for group in compared["modelGroups"]] == ["eval-1-0", "eval-1-1"]
    assert [group["rollouts"][0]["id"] for group in compared["compGroups"]] == [
        "external-eval-1-0",
        "external-eval-1-1",
    ]
    summary = wire.get(f"{base}/summary", externalEvalId=evals[0]["id"])
    assert len(summary["data"]) == 3
    wire.get(f"{base}/comparison", 404, externalEvalId="evl_none")


def test_a_waiting_run_is_cancelled_at_once_and_a_leased_one_is_asked(live, wire, paths):
    from benchmax.platform.store.queue import jobs

    run = wire.launch(paths)["runId"]
    answer = wire.http.post(f"/v1/train/runs/{run}/cancel").json()
    assert answer["success"] is True
    assert wire.get(f"/v1/train/runs/{run}")["status"] == "cancelled"
    assert wire.http.post(f"/v1/train/runs/{run}/cancel").json()["success"] is False

    run = wire.launch(paths)["runId"]
    with live.database.write() as session:
        session.get(jobs.Job, jobs.of_run(session, run)[0].id).state = "leased"
    assert wire.http.post(f"/v1/train/runs/{run}/cancel").json()["success"] is True
    types = [event["type"] for event in wire.get(f"/v1/train/runs/{run}/events")["events"]]
    assert types == ["training.pending", "training.cancelling"]


def test_a_public_run_is_read_without_a_key_and_cancelled_by_nobody_else(live, wire, paths):
    run = wire.launch(paths)["runId"]
    anonymous = httpx2.Client(base_url=live.url, timeout=SECONDS)
    assert anonymous.get(f"/v1/train/runs/{run}").status_code == 401
    assert wire.http.patch(f"/v1/train/runs/{run}", json={"isPublic": True}).json()["isPublic"] is True
    assert anonymous.get(f"/v1/train/runs/{run}").json()["isOwner"] is False
    _, other = live.user("other@example.org")
    with live.client(other) as stranger:
        answer = stranger.post(f"/v1/train/runs/{run}/cancel")
        assert answer.status_code == 403
        assert set(answer.json()) == {"error"}
    anonymous.close()


def test_a_wrong_key_is_401_with_an_error_text(live):
    with live.client("sk_00000000_" + "a" * 43) as client:
        answer = client.get("/v1/train/runs")
        assert answer.status_code == 401
        assert "API key" in answer.json()["error"]


def test_device_login_gives_a_token_that_works(live, owner, monkeypatch):
    # The second poll is too soon, however slow the machine.
    monkeypatch.setattr("benchmax.platform.store.accounts.device_codes.DEVICE_INTERVAL", 600)
    client = httpx2.Client(base_url=live.url, timeout=SECONDS)
    code = client.post("/api/auth/device/code", json={"client_id": "castform-cli"}).json()
    assert {
        "device_code",
        "user_code",
        "verification_uri",
        "verification_uri_complete",
        "expires_in",
        "interval",
    } <= set(code)
    body = {
        "grant_type": "urn:ietf:params:oauth:grant-type:device_code",
        "device_code": code["device_code"],
        "client_id": "castform-cli",
    }
    waiting = client.post("/api/auth/device/token", json=body)
    assert (waiting.status_code, waiting.json()) == (400, {"error": "authorization_pending"})
    assert client.post("/api/auth/device/token", json=body).json() == {"error": "slow_down"}
    with live.client(owner[1]) as signed_in:
        assert signed_in.post("/api/auth/device/approve", json={"userCode": code["user_code"]}).json()["success"]
    token = client.post("/api/auth/device/token", json=body).json()["access_token"]
    headers = {"Authorization": f"Bearer {token}"}
    assert client.get("/api/auth/token", headers=headers).json() == {"token": token}
    assert client.get("/v1/whoami", headers=headers).json()["email"] == "owner@example.org"
    client.close()


def test_corpora_in_the_published_shapes(wire):
    corpus = wire.http.post("/v1/corpora", json={"name": "docs"}).json()
    assert {"id", "name", "createdAt", "updatedAt"} <= set(corpus)
    chunks = [{"id": f"c{n}", "content": f"text about fox {n}", "metadata": {"n": n}} for n in range(3)]
    added = wire.http.post(f"/v1/corpora/{corpus['id']}/chunks", json={"chunks": chunks}).json()
    assert added == {"insertedCount": 3, "chunkIds": ["c0", "c1", "c2"]}
    page = wire.get(f"/v1/corpora/{corpus['id']}/chunks", limit=2)
    assert [chunk["id"] for chunk in page["results"]] == ["c0", "c1"]
    rest = wire.get(f"/v1/corpora/{corpus['id']}/chunks", limit=2, cursor=page["nextCursor"])
    assert [chunk["id"] for chunk in rest["results"]] == ["c2"]
    assert rest["nextCursor"] is None
    found = wire.http.post(f"/v1/corpora/{corpus['id']}/search", json={"query": "fox", "metadata": {"n": 1}}).json()
    assert [hit["id"] for hit in found["results"]] == ["c1"]
    assert set(found["results"][0]) == {"id", "content", "metadata", "score"}
    assert (found["total"], found["query"]) == (1, "fox")
    several = [{"field": "n", "op": "eq", "value": 0}, {"field": "n", "op": "gte", "value": 2}]
    for filters, ids in (({"or": several}, {"c0", "c2"}), ({"and": several}, set()), ({"n": 1}, {"c1"})):
        found = wire.http.post(f"/v1/corpora/{corpus['id']}/search", json={"query": "fox", "filters": filters}).json()
        assert {hit["id"] for hit in found["results"]} == ids
    wrong = {"query": "fox", "filters": {"field": "n", "op": "near", "value": 1}}
    assert "op is 'near'" in wire.http.post(f"/v1/corpora/{corpus['id']}/search", json=wrong).json()["error"]
    (listed,) = wire.get("/v1/corpora")
    assert (listed["id"], listed["chunkCount"]) == (corpus["id"], 3)
    assert listed["updatedAt"] > corpus["updatedAt"]
    assert wire.get(f"/v1/corpora/{corpus['id']}") == listed
    assert wire.http.delete(f"/v1/corpora/{corpus['id']}").json()["success"] is True
    assert wire.get("/v1/corpora") == []
    wire.get(f"/v1/corpora/{corpus['id']}", 404)
    many = [{"id": f"c{n}", "content": ""} for n in range(101)]
    assert wire.http.post(f"/v1/corpora/{corpus['id']}/chunks", json={"chunks": many}).status_code == 400


HOSTILE = [
    "[" * 100_000,
    '{"args": {"env_cls_path": "\\ud800", "env_metadata_path": "a", "train_dataset_path": "a"}}',
    '{"args": {"env_cls_path": "a\\u0000b", "env_metadata_path": "a", "train_dataset_path": "a"}}',
    '{"args": {"num_epochs": NaN}}',
    '{"args": {"num_epochs": 1e999}}',
    '{"args": {"seed": ' + "9" * 5000 + "}}",
    '{"args": {}, "name": "\\ud800"}',
    '{"args": ' + '{"a":' * 5000 + "1" + "}" * 5001,
    '{"args": {"group_size": [[[]]]}}',
    "null",
    "",
    "\x00",
]


@pytest.mark.parametrize("body", HOSTILE)
def test_hostile_bodies_are_refused_not_stumbled_over(wire, body):
    answer = wire.http.post("/v1/train/runs/launch", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 404), answer.text
    assert set(answer.json()) == {"error"}


def test_odd_text_comes_back_as_it_was(wire, paths):
    name = "<b>'; drop 🤖 \u202egnirts \n " + "x" * 200
    run = wire.launch(paths, name=name)["runId"]
    assert wire.get(f"/v1/train/runs/{run}")["name"] == name
    corpus = wire.http.post("/v1/corpora", json={"name": "odd"}).json()["id"]
    for chunk in ('{"content": "a", "metadata": {"a": "\\ud800", "b": NaN}}', '{"content": "a\\u0000b"}'):
        added = wire.http.post(
            f"/v1/corpora/{corpus}/chunks",
            content=f'{{"chunks": [{chunk}]}}',
            headers={"Content-Type": "application/json"},
        )
        assert added.status_code == 400, added.text
    assert wire.http.get(f"/v1/corpora/{corpus}/chunks").status_code == 200
    assert wire.http.delete(f"/v1/corpora/{corpus}").status_code == 200


def test_an_empty_request_is_told_what_it_lacks(wire):
    for path in ("/v1/rollout/stream", "/v1/rollout/batch/stream"):
        assert "env" in wire.http.post(path, json={}).json()["error"]
    answer = wire.http.post("/v1/train/runs/sft", json={})
    assert (answer.status_code, "dataset" in answer.json()["error"]) == (400, True)
