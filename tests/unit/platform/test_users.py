"""Keys, sign-in, files, secrets, corpora and evals in the database, on SQLite and PostgreSQL alike."""

from __future__ import annotations

import stat

import pytest
import sqlalchemy as sa

from benchmax.errors import UsageError
from benchmax.platform.store.accounts import api_keys, device_codes, logins, users
from benchmax.platform.store.accounts.secrets import Vault
from benchmax.platform.store.datadir import DataDir
from benchmax.platform.store.runs import evals, events
from benchmax.platform.store.tables import Run, Secret
from benchmax.platform.store.uploads import blobs, corpora
from benchmax.platform.wire.values import ENDED
from benchmax.search.filters import predicate
from platform_world import make_run

# People and files


def test_keys_are_kept_as_digests_and_end(store):
    with store.write() as session:
        user = users.ensure_user(session, "A@Example.org ")
        row, text = api_keys.create_key(session, user.id, name="mine")
        _, old = api_keys.create_key(session, user.id, days=-1)
        assert users.by_email(session, "a@example.org").id == user.id
        with pytest.raises(UsageError, match="Scopes are"):
            api_keys.create_key(session, user.id, scopes=["root"])
    assert len(text) == 3 + 8 + 1 + 43
    with store.write() as session:
        assert api_keys.find_key(session, text)[1].id == user.id
        assert api_keys.find_key(session, old) is None
        assert api_keys.revoke_key(session, "usr_other", row.id) is None
        api_keys.revoke_key(session, user.id, row.id)
    with store.read() as session:
        assert api_keys.find_key(session, text) is None


def test_links_work_once_and_sessions_end(store):
    with store.write() as session:
        user = users.ensure_user(session, "a@example.org")
        token = logins.create_link(session, user.id)
        late = logins.create_link(session, user.id, seconds=-1)
    with store.write() as session:
        assert logins.use_link(session, token) == user.id
        assert logins.use_link(session, token) is None
        assert logins.use_link(session, late) is None
        opened = logins.open_login(session, user.id)
    with store.write() as session:
        found, _ = logins.find_login(session, opened)
        found.last_seen -= logins.IDLE_SECONDS
    with store.write() as session:
        assert logins.find_login(session, opened) is None


def test_a_device_code_is_given_once_and_not_hurried(store, monkeypatch):
    monkeypatch.setattr(device_codes, "DEVICE_INTERVAL", 600)  # the second poll is too soon, however slow the machine
    with store.write() as session:
        user = users.ensure_user(session, "a@example.org")
        token, row = device_codes.create_device_code(session, "castform-cli")
        assert device_codes.poll_device_code(session, token, "castform-cli") == "authorization_pending"
        assert device_codes.poll_device_code(session, token, "castform-cli") == "slow_down"
        assert device_codes.poll_device_code(session, token, "other") == "invalid_grant"
        found = device_codes.find_user_code(session, row.user_code.lower().replace("-", " "))
        found.user_id = user.id
    with store.write() as session:
        assert device_codes.find_user_code(session, row.user_code) is None
        assert device_codes.poll_device_code(session, token, "castform-cli").user_id == user.id
    with store.write() as session:
        assert device_codes.poll_device_code(session, token, "castform-cli") == "invalid_grant"


def test_an_upload_is_whole_or_absent(store, tmp_path):
    (tmp_path / "blobs").mkdir()
    files = blobs.BlobStore(tmp_path / "blobs")
    with store.write() as session:
        user = users.ensure_user(session, "a@example.org")
        token, _ = blobs.create_upload(session, user.id, "datasets/a/train.jsonl", "application/jsonl", 60)
    with pytest.raises(RuntimeError), files.receive() as incoming:  # noqa: PT012 - the block is the transfer
        incoming.write(b"half")
        raise RuntimeError("connection lost")
    assert list((tmp_path / "blobs").rglob("*")) == []
    with store.write() as session:
        upload = blobs.claim_upload(session, token)
        assert blobs.claim_upload(session, token) is None
    with files.receive() as incoming:
        incoming.write(b"one\n\n")
        incoming.write(b"two\n")
        sha256 = incoming.keep()
    with store.write() as session:
        for _ in range(2):
            blobs.name_blob(session, upload, sha256, incoming.size)
    assert files.path(sha256).read_bytes() == b"one\n\ntwo\n"
    with store.read() as session:
        assert blobs.find(session, user.id, "datasets/a/train.jsonl")[1].size == 9
        assert blobs.find(session, "usr_other", "datasets/a/train.jsonl") is None
        assert [path.path for path, _ in blobs.paths_of(session, user.id, "datasets/")] == ["datasets/a/train.jsonl"]
        assert blobs.paths_of(session, user.id, "data%/") == []


def test_paths_are_names_as_an_older_client_wrote_them():
    for path in ("datasets/Math: try 2 (é, 日本)/ab12/train.jsonl", "envs/a?b#c&d%20 '1'/x.pkl"):
        assert blobs.check_path(path) == path


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/etc/passwd",
        "a/../b",
        "a//b",
        "..",
        "a/.",
        "a\\b",
        "a\0b",
        "a\nb",
        " /b",
        "a\u202eb",
        "\ud800",
        "a" * 600,
        "//proc/self",
    ],
)
def test_paths_that_could_mean_another_are_refused(path):
    with pytest.raises(UsageError, match="cannot be used"):
        blobs.check_path(path)
    with pytest.raises(UsageError):
        blobs.BlobStore(path).path("../" + "a" * 61)


def test_secrets_are_encrypted_and_a_run_gets_its_own(store, tmp_path):
    data = DataDir(tmp_path / "data")
    vault = Vault(data)
    assert stat.S_IMODE(data.secret_key.stat().st_mode) == 0o600
    with store.write() as session:
        run = make_run(session)
        vault.put(session, run.owner_id, "OPENAI_API_KEY", "first")
        vault.put(session, run.owner_id, "OPENAI_API_KEY", "canary-value")
        vault.put(session, run.owner_id, "RUN_ONLY", "b", run.id)
        vault.put(session, run.owner_id, "OPENAI_API_KEY", "for another", "run_other")
    with store.read() as session:
        assert Vault(data).for_run(session, run.owner_id, run.id) == {"OPENAI_API_KEY": "canary-value", "RUN_ONLY": "b"}
        assert all(b"canary-value" not in row.ciphertext for row in vault_rows(session))
    data.secret_key.write_text("broken")
    with pytest.raises(UsageError, match="damaged"):
        Vault(data)


def vault_rows(session):
    return session.scalars(sa.select(Secret)).all()


META = {"n": 3, "lang": "en", "tags": ["a", "b"], "ok": True, "day": "2024-05-01", "none": None}


@pytest.mark.parametrize(
    ("filters", "passes"),
    [
        ({"lang": "en"}, True),
        ({"lang": "en", "n": 4}, False),
        ({"field": "n", "op": "eq", "value": 3.0}, True),
        ({"field": "ok", "op": "eq", "value": 1}, False),
        ({"field": "none", "op": "eq", "value": None}, True),
        ({"field": "absent", "op": "eq", "value": None}, False),
        ({"field": "absent", "op": "ne", "value": 1}, True),
        ({"field": "n", "op": "gte", "value": 3}, True),
        ({"field": "n", "op": "gt", "value": 3}, False),
        ({"field": "n", "op": "lte", "value": "3"}, False),
        ({"field": "day", "op": "lt", "value": "2024-06"}, True),
        ({"field": "absent", "op": "lt", "value": 9}, False),
        ({"field": "lang", "op": "in", "value": ["de", "en"]}, True),
        ({"field": "lang", "op": "not_in", "value": ["de"]}, True),
        ({"field": "tags", "op": "contains_any", "value": ["b", "z"]}, True),
        ({"field": "tags", "op": "contains_all", "value": ["b", "z"]}, False),
        ({"and": [{"field": "n", "op": "eq", "value": 3}, {"or": [{"lang": "de"}, {"lang": "en"}]}]}, True),
        ({"and": [{"field": "n", "op": "eq", "value": 3}, {"not": {"lang": "en"}}]}, False),
        ({"or": [{"n": 1}, {"n": 2}]}, False),
        ([{"n": 3}, {"lang": "en"}], True),
    ],
)
def test_filters_on_metadata(filters, passes):
    assert predicate(filters)(META) is passes


def test_no_filter_lets_everything_pass_and_a_wrong_one_is_told():
    assert predicate(None) is predicate({}) is predicate([]) is None
    deep = {"lang": "en"}
    for _ in range(20):
        deep = {"and": [deep]}
    for wrong, words in (
        (
            {"and": [{"field": "n", "op": "near", "value": 3}]},
            r"filters\.and\[0\]\.op is 'near'\. Use one of eq, ne, in",
        ),
        ({"field": "n", "op": "in", "value": 3}, "value must be a list for 'in'"),
        ({"or": []}, r"filters\.or is empty"),
        ({"and": ["n = 3"]}, r"filters\.and\[0\] is not a filter"),
        ({"field": 3, "op": "eq", "value": 3}, "field is not a name"),
        ({"and": "n"}, r"filters\.and is no list of filters"),
        ({"not": [1]}, r"filters\.not is no filter"),
        ({"op": "and", "filters": [{"n": 3}]}, "filters has no field"),
        ({"field": "n", "value": 3}, "filters has no op"),
        (deep, "too large"),
        ({"or": [{"n": 1}] * 300}, "too large"),
    ):
        with pytest.raises(UsageError, match=words):
            predicate(wrong)


def test_search_finds_words_and_quotes_operators(store):
    with store.write() as session:
        user = users.ensure_user(session, "a@example.org")
        corpus, other = corpora.Corpus(owner_id=user.id, name="a"), corpora.Corpus(owner_id=user.id, name="b")
        session.add_all([corpus, other])
        session.flush()
        chunks = [
            {"id": "1", "content": "the quick brown fox", "metadata": {"lang": "en"}},
            {"id": "2", "content": "fox and fox again", "metadata": {"lang": "de"}},
            {"id": "3", "content": "nothing here"},
        ]
        corpora.add(session, corpus.id, chunks)
        corpora.add(session, other.id, chunks)
        corpora.add(session, corpus.id, [{"id": "3", "content": "now a hare"}])
    search = {"limit": 10, "offset": 0}
    with store.write() as session:
        hits, total = corpora.search(session, corpus.id, 'fox" OR NEAR(', **search)
        assert {chunk.id for chunk, _ in hits} == {"1", "2"}
        assert total == 2
        assert all(score > 0 for _, score in hits)
        hits, _ = corpora.search(session, corpus.id, "fox", **search | {"passes": predicate({"lang": "en"})})
        assert [chunk.id for chunk, _ in hits] == ["1"]
        assert corpora.search(session, corpus.id, "nothing", **search) == ([], 0)
        assert [chunk.id for chunk, _ in corpora.search(session, corpus.id, "hare", **search)[0]] == ["3"]
        assert corpora.search(session, corpus.id, "-- * ", **search) == ([], 0)
        german = corpora.search(session, corpus.id, "", **search | {"passes": predicate({"lang": "de"})})
        assert [(chunk.id, score) for chunk, score in german[0]] == [("2", 0.0)]
        session.delete(corpus)
        session.flush()
        assert corpora.search(session, corpus.id, "fox", **search) == ([], 0)
        assert corpora.count(session, other.id) == 3


def test_an_eval_moves_and_ends(store):
    with store.write() as session:
        run = make_run(session)
        row = evals.create(session, run.id, model="base", total=10)
        evals.set_progress(session, row.id, status="active", done=3)
        evals.set_progress(session, row.id, status="complete", done=10, summary={"mean": 0.5})
        evals.set_progress(session, row.id, status="active", done=1)
    with store.read() as session:
        found = evals.get(session, run.id, row.id)
        assert (found.status, found.done, found.summary) == ("complete", 10, {"mean": 0.5})
        assert found.status in ENDED
        assert found.ended is not None
        assert evals.get(session, "run_other", row.id) is None
        assert [event.data["done"] for event in events.of_run(session, run.id, ["feed"])] == [3, 10]
        assert session.get(Run, run.id).id == run.id
