"""Thirty secrets, told by an environment in every way it has, are in no file, row, answer, feed or export (S34)."""

from __future__ import annotations

import base64
import json
import textwrap
import urllib.parse

import pytest

from benchmax.envs.base_env import BaseEnv
from benchmax.envs.example_id import make_example
from benchmax.platform.client import TrainerClient
from benchmax.platform.sdk.rollout_client import RolloutClient
from benchmax.platform.sdk.static_export import export_static
from benchmax.platform.store.accounts.secrets import Vault
from benchmax.platform.store.queue import jobs
from benchmax.platform.store.runs import evals
from benchmax.trainer.tiny_model import make_tiny
from living import content, files_under
from runner_world import get, wait_until
from session_world import bundled, fake_model, store_run, supervised

pytestmark = pytest.mark.timeout(600)  # a real trainer, on machines that do other things too

LETTERS = "Zq7" * 40
PEM = "\n".join(
    ["-----BEGIN RSA PRIVATE KEY-----", *textwrap.wrap(base64.b64encode(bytes(range(40, 240)) * 3).decode(), 64),
     "-----END RSA PRIVATE KEY-----"]
)  # fmt: skip
KINDS = {
    "API_KEY": f"sk-proj-{LETTERS[:40]}",
    "BEARER": f"Bearer {LETTERS[1:50]}",
    "BASIC_URL": f"https://me:p@ss/{LETTERS[:12]}@git.example.org/x",
    "AWS_ID": f"AKIA{LETTERS.upper()[:16]}",
    "AWS_KEY": f"wJalr/{LETTERS[2:20]}+bPx/{LETTERS[:12]}",
    "PRIVATE_KEY": PEM,
    "DATABASE": f"postgresql://app:{LETTERS[:14]}%21@db.internal:5432/app",
    "JWT": f"eyJhbGciOi.{LETTERS[:30]}.{LETTERS[3:40]}",
    "JSON_ACCOUNT": json.dumps({"type": "service_account", "private_key": PEM, "id": LETTERS[:20]}),
    "UNICODE": "gehéim-ключ-密码-" + LETTERS[:8],
    "QUOTES": f"a\"b'c\\d`{LETTERS[:10]}",
    "SPACES": f"correct horse {LETTERS[:9]} staple",
    "TABS": f"col1{LETTERS[:9]}\tcol2{LETTERS[3:12]}",
    "MARKUP": f"<b>&amp;{LETTERS[:11]}</b>",
    "PERCENT": f"100%{LETTERS[:10]}%2F%2f",
    "EQUALS": f"{LETTERS[:16]}====",
    "HEX": "deadbeef" * 5,
    "UUID": "3f2504e0-4f89-11d3-9a0c-0305e82c3301",
    "SHORT": "Qz7!xY",
    "LINES": f"first{LETTERS[:12]}\nsecond{LETTERS[1:14]}\nthird{LETTERS[2:16]}",
}
SECRETS = KINDS | {f"TOKEN_{number}": f"tok_{number}_{LETTERS[number : number + 24]}" for number in range(10)}


class Leaky(BaseEnv):
    """Tells what it knows."""

    def __init__(self, **kwargs):
        import os
        import sys

        self.known = {name: os.environ[name] for name in os.environ if name in Leaky.names()}
        for value in self.known.values():
            print("opened with", value)
            print("opened with", repr(value), file=sys.stderr)

    @staticmethod
    def names():
        return {
            "API_KEY", "BEARER", "BASIC_URL", "AWS_ID", "AWS_KEY", "PRIVATE_KEY", "DATABASE", "JWT", "JSON_ACCOUNT",
            "UNICODE", "QUOTES", "SPACES", "TABS", "MARKUP", "PERCENT", "EQUALS", "HEX", "UUID", "SHORT", "LINES",
            *(f"TOKEN_{number}" for number in range(10)),
        }  # fmt: skip

    @classmethod
    def dataset_preprocess(cls, example, **kwargs):
        import os

        number = example["n"]
        names = sorted(cls.names() & set(os.environ))
        told = os.environ[names[number % len(names)]] if names else ""
        return make_example(
            [{"role": "user", "content": f"{number}? {told[:150]}"}],
            {"n": number, "note": told, "deep": [{told: told}]},
        )

    async def init_rollout(self, rollout_id, **kwargs):
        import logging

        for value in self.known.values():
            logging.getLogger(__name__).warning("begun with %s", value)

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        import base64
        import json
        import logging
        import subprocess
        import urllib.parse

        log = logging.getLogger(__name__)
        for value in self.known.values():
            log.info("has %s, %s", value, base64.b64encode(f"user:{value}".encode()).decode())
            log.info(json.dumps({"headers": {"Authorization": value}}))
            print(urllib.parse.quote(value, safe=""), value.upper(), value.encode().hex())
            half = len(value) // 2
            print(value[:half] + "\n" + value[half:])
        subprocess.run(["sh", "-c", "env >&2"], check=False)
        log.error("x" * 1990 + self.known["API_KEY"])
        values = list(self.known.values())
        if task["n"] % 4 == 3:
            raise RuntimeError(f"could not sign in with {values[task['n'] % len(values)]}")
        text = messages[-1]["content"]
        digits = sum(letter.isdigit() for letter in text) / max(1, len(text))
        return {"digits": digits, f"of {self.known['SPACES']}"[:70]: 0.0}


ARGS = {
    "learning_rate": 5e-3, "tune": "full", "group_size": 4, "max_new_tokens": 7, "max_turns": 1, "eval_every": 1,
    "max_steps": 1, "num_epochs": 1, "recipe": "plain", "max_extra_groups": 0,
}  # fmt: skip


def forms(value):
    """What must not be found: the value, and what other programs make of it."""
    lines = [line for line in value.splitlines() if len(line) >= 8] or [value]
    found = {value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], *lines}
    for line in lines if len(value) >= 8 else []:
        raw = line.encode()
        found |= {urllib.parse.quote(line, safe=""), raw.hex(), line.upper(), base64.b64encode(raw).decode()[:-4]}
    return {form.encode() for form in found if len(form) >= 6}


FORBIDDEN = {form: name for name, value in SECRETS.items() for form in forms(value)}


def leaks(text):
    """Names of the secrets that stand in it."""
    return {FORBIDDEN[form] for form in FORBIDDEN if form in text}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A run that is done, evaluated, and a rollout before there was one."""
    folder = tmp_path_factory.mktemp("secrets")
    model = make_tiny(folder / "model", hidden=32, layers=1)
    with supervised(folder) as live:
        user_id, key = live.user()
        with live.database.write() as session:
            for name, value in SECRETS.items():
                Vault(live.data).put(session, user_id, name, value)
        rows = [{"n": number} for number in range(32)]
        run_id = store_run(live, user_id, Leaky, rows, queued=True, model=str(model), **ARGS)
        wait_until(lambda: get(live.database, run_id).ended, 200)
        assert get(live.database, run_id).status == "complete", get(live.database, run_id).reason
        with live.database.write() as session:
            row = evals.create(session, run_id, model="checkpoint:latest", options={"rows": 8, "samples": 1})
            jobs.enqueue(session, run_id, kind="eval", eval_id=row.id)
        with RolloutClient(key, live.url) as client, fake_model("four") as fake:
            client.stream_rollout({"n": 5}, **bundled(Leaky), llm_base_url=fake.base_url, llm_model="m")

        def evaluated():
            with live.database.read() as session:
                return evals.get(session, run_id, row.id).ended

        wait_until(evaluated, 200)
        live.key, live.run_id = key, run_id
        yield live


def test_the_environment_did_tell(world):
    """The test's own premise: it had them all, and everything it said is where it belongs, without them."""
    log = (world.data.run(world.run_id) / "child.log").read_text()
    assert log.count("opened with [secret]") >= len(SECRETS) - 2
    with world.client(world.key) as client:
        logs = client.get(f"/v1/train/runs/{world.run_id}/logs?process=environment&limit=1000").text
    assert "has [secret], " in logs


def test_no_file_has_one(world):
    kept = {world.data.secret_key}
    found = {}
    for path in files_under(world.data.root):
        if path not in kept and (names := leaks(content(path))):
            found[str(path.relative_to(world.data.root))] = names
    assert found == {}


def asked(world, client):
    """Every address that tells something of a run."""
    run = f"/v1/train/runs/{world.run_id}"
    yield from ("/v1/train/runs", "/v1/secrets", "/v1/audit", "/v1/environments", "/v1/datasets", "/v1/playground")
    ends = (
        "", "/details", "/events", "/config", "/system", "/checkpoints", "/external-eval", "/env-logs", "/summary",
        "/scalars?mode=train", "/scalars?mode=eval", "/environment-logs", "/alerts",
        *(f"/logs?process={name}&limit=1000" for name in ("trainer", "child", "environment")),
    )  # fmt: skip
    yield from (f"{run}{end}" for end in ends)
    for mode in ("train", "eval", "external-eval"):
        yield f"{run}/rollouts?mode={mode}&limit=1000"
        for item in client.get(f"{run}/rollouts?mode={mode}&limit=1000").json().get("data", []):
            yield f"{run}/rollouts/{item['id']}/details"


def test_no_answer_has_one(world):
    found, seen = {}, 0
    with world.client(world.key) as client:
        for path in asked(world, client):
            answer = client.get(path)
            seen += answer.status_code == 200
            if names := leaks(answer.content):
                found[path] = names
    assert found == {}
    assert seen > 60, "rollouts were looked at"


def test_no_feed_has_one(world):
    with world.client(world.key) as client, client.stream("GET", f"/v1/train/runs/{world.run_id}/stream") as answer:
        told = answer.read()
    assert b'"type": "end"' in told
    assert told.count(b"data: ") > 5
    assert leaks(told) == set()


def test_no_export_has_one(world, tmp_path):
    console = tmp_path / "console"
    console.mkdir()
    for name in ("console.js", "style.css", "icon.svg"):
        (console / name).write_text("")
    with TrainerClient(world.key, world.url) as client:
        done = export_static(client, world.run_id, tmp_path / "saved", console=console)
        frame = client.run(world.run_id)
        rollouts = [client.get_rollout_details(world.run_id, each["id"]) for each in client.list_rollouts(world.run_id)]
    assert done.rollouts > 10
    assert {str(path): names for path in files_under(tmp_path / "saved") if (names := leaks(content(path)))} == {}
    assert leaks(json.dumps(rollouts, ensure_ascii=False).encode()) == set()
    assert frame is not None


def test_what_is_no_secret_is_shown(world):
    with world.client(world.key) as client:
        config = client.get(f"/v1/train/runs/{world.run_id}/config").text
    assert "max_new_tokens" in config
    assert "[secret]" not in config
