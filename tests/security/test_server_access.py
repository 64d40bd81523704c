"""Who gets in: every route without credentials (S1), every scope (S2), keys (S3), passwords (S4), sessions (S10)."""

from __future__ import annotations

import re
import time

import pytest
from fastapi import APIRouter, FastAPI

from benchmax.errors import UsageError
from benchmax.platform.server import app
from benchmax.platform.server.security import last_uses, passwords, scopes
from benchmax.platform.server.security.scopes import ACCESS, AccessTable, routes_of
from benchmax.platform.server.settings import ServerSettings
from benchmax.platform.store.accounts import lockout, logins, tokens, users
from benchmax.platform.store.tables import ApiKey, Audit, Base, Login
from benchmax.platform.wire.values import SCOPES
from living import content
from platform_world import LiveServer

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND")


def filled(path):
    """A path with something in every place."""
    return re.sub(r"\{[^}]*\}", "x", path)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("access")
    console = folder / "console"
    (console / "assets").mkdir(parents=True)
    (console / "index.html").write_text("<title>console</title>")
    (console / "assets" / "a.js").write_text("1")
    (folder / "outside.txt").write_text("canary")
    (console / "assets" / "link").symlink_to(folder / "outside.txt")
    with LiveServer(folder, console=console) as server:
        yield server


def test_every_route_needs_credentials_unless_it_is_listed_as_open(world):
    """S1: walks the app, not a list of ours."""
    opened = set()
    with world.client() as client:
        for path in sorted({path for _, path in routes_of(world.app)}):
            for method in METHODS:
                answer = client.request(method, filled(path))
                if answer.status_code != 401:
                    opened.add(f"{method} {path}")
                elif method != "HEAD":
                    assert set(answer.json()) == {"error"}
    assert opened == ACCESS["open"] - {"POST /login"}  # which says 401 to a wrong password itself


def test_the_open_list_is_short():
    pages = {f"GET /{page}{rest}" for page in scopes.PAGES for rest in ("", "/{path:path}")}
    assert ACCESS["open"] - pages == {
        "GET /healthz",
        "GET /login",
        "POST /login",
        "PUT /v1/storage/uploads/{token}",
        "POST /api/auth/device/code",
        "POST /api/auth/device/token",
        "GET /",
        "GET /assets/{path:path}",
    }


def test_unknown_addresses_tell_a_stranger_nothing(world):
    with world.client() as client:
        for path in ("/v1/nothing", "/v1/train/runs/", "/docs", "/redoc", "/openapi.json", "/metrics", "/api/x"):
            assert client.get(path).status_code == 401, path
            assert client.post(path).status_code == 401, path


def test_the_app_does_not_start_with_a_route_nobody_listed(world, monkeypatch):
    router = APIRouter()

    @router.post("/v1/backdoor")
    def backdoor() -> None:
        raise AssertionError

    monkeypatch.setattr(app, "ROUTERS", (*app.ROUTERS, router))
    with pytest.raises(RuntimeError, match="POST /v1/backdoor is in no list"):
        app.create_app(world.settings, world.database)


def test_a_mount_is_refused_because_its_routes_cannot_be_listed():
    mounted = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    mounted.mount("/files", FastAPI())
    with pytest.raises(RuntimeError, match="not mounts"):
        AccessTable(mounted)


def test_no_route_is_in_two_lists_and_every_listed_route_exists(world):
    listed = [route for routes in ACCESS.values() for route in routes]
    assert len(listed) == len(set(listed))
    assert set(listed) == {f"{method} {path}" for method, path in routes_of(world.app)}


# S2


def test_scopes_decide_by_the_table(world):
    """Every route with a key of each scope: 403 exactly where the table says so."""
    world.settings.limits_per_hour["key"] = 1000
    keys = {scope: world.user(f"{scope}@example.org", scopes=(scope,))[1] for scope in SCOPES}
    for scope, key in keys.items():
        with world.client(key) as client:
            for method, path in routes_of(world.app):
                level = scopes._LEVELS[f"{method} {path}"]
                if level == "open" or "stream" in path:
                    continue
                answer = client.request(method, filled(path))
                refused = level != "public" and level != scope
                assert (answer.status_code == 403) == refused, (scope, method, path, answer.text)
                assert answer.status_code < 500, (method, path, answer.text)


def test_another_users_things_are_not_there(world):
    mine, key = world.user("mine@example.org")
    _, other = world.user("other@example.org")
    from platform_world import make_run

    with world.database.write() as session:
        run = make_run(session, "mine@example.org").id
        assert mine
    with world.client(key) as client:
        corpus = client.post("/v1/corpora", json={"name": "c"}).json()["id"]
        secret = client.put("/v1/secrets/MINE", json={"value": "canary-secret"})
        assert secret.status_code == 200
        endpoint = client.post("/v1/endpoints", json={"name": "e", "baseUrl": "http://h/v1", "model": "m"}).json()["id"]
        key_id = client.get("/v1/keys").json()["keys"][0]["id"]
        paths = [
            f"/v1/train/runs/{run}",
            *(
                f"/v1/train/runs/{run}/{part}"
                for part in ("details", "events", "scalars?mode=a", "environment-logs", "rollouts", "rollouts/summary")
            ),
            f"/v1/corpora/{corpus}/chunks",
        ]
        for path in paths:
            assert client.get(path).status_code == 200, path
    with world.client(other) as stranger:
        for path in paths:
            assert stranger.get(path).status_code == 404, path
        assert stranger.get(f"/v1/train/runs/{run}/stream").status_code == 404
        for method, path, body in [
            ("POST", f"/v1/train/runs/{run}/cancel", None),
            ("POST", f"/v1/train/runs/{run}/resume", None),
            ("PATCH", f"/v1/train/runs/{run}", {"name": "theirs"}),
            ("DELETE", f"/v1/train/runs/{run}", None),
            ("DELETE", f"/v1/corpora/{corpus}", None),
            ("POST", f"/v1/corpora/{corpus}/search", {"query": "x"}),
            ("DELETE", "/v1/secrets/MINE", None),
            ("DELETE", f"/v1/endpoints/{endpoint}", None),
            ("DELETE", f"/v1/keys/{key_id}", None),
        ]:
            assert stranger.request(method, path, json=body).status_code == 404, path
        assert stranger.get("/v1/train/runs").json() == []
        assert stranger.get("/v1/storage/files").json() == {"files": []}
        assert stranger.get("/v1/secrets").json() == {"secrets": []}
    with world.client(key) as client:
        assert client.get(f"/v1/train/runs/{run}").json()["name"] == "r"
        names = client.get("/v1/secrets")
        assert [each["name"] for each in names.json()["secrets"]] == ["MINE"]
        assert "canary-secret" not in names.text


@pytest.mark.parametrize(
    "header",
    [
        "Bearer",
        "Bearer x",
        "Basic abc",
        "bearer",
        "Bearer sk_00000000_" + "a" * 43,
        "Bearer " + "a" * 8000,
        "sk_x",
        "",
    ],
)
def test_malformed_keys_are_401(world, header):
    with world.client() as client:
        answer = client.get("/v1/whoami", headers={"Authorization": header})
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"


def test_revoked_and_expired_keys_are_401(world):
    _, old = world.user("old@example.org", days=-1)
    _, key = world.user("old@example.org")
    with world.client(old) as client:
        assert client.get("/v1/whoami").status_code == 401
    with world.client(key) as client:
        made = client.post("/v1/keys", json={"name": "k", "scopes": ["read"]}).json()
        with world.client(made["key"]) as second:
            assert second.get("/v1/whoami").json()["scopes"] == ["read"]
            assert second.post("/v1/keys", json={}).status_code == 403
            assert client.delete(f"/v1/keys/{made['id']}").status_code == 200
            assert second.get("/v1/whoami").status_code == 401


def test_a_key_cannot_make_a_stronger_key(world):
    _, key = world.user("weak@example.org", scopes=("admin",))
    with world.client(key) as client:
        assert client.post("/v1/keys", json={"scopes": ["read", "write"]}).status_code == 403


# S3


def test_keys_are_shown_once_and_stored_as_digests(world):
    _, key = world.user("keys@example.org")
    with world.client(key) as client:
        made = client.post("/v1/keys", json={"name": "k"}).json()
        text = made["key"]
        assert re.fullmatch(r"sk_[0-9a-f]{8}_[\w-]{43}", text)
        assert made["prefix"] == text[3:11]
        listed = client.get("/v1/keys").text
        assert text not in listed
    with world.client(text) as used:
        assert used.get("/v1/whoami").status_code == 403 or used.get("/v1/train/runs").status_code == 200
    deadline = time.monotonic() + 30
    while last_uses._waiting and time.monotonic() < deadline:  # another thread writes it down
        time.sleep(0.01)
    with world.database.read() as session:
        row = session.get(ApiKey, made["id"])
        assert row.last_used > time.time() - 60
        assert row.digest == tokens.digest(text)
    with world.database.engine.connect() as connection:
        found = [repr(connection.execute(table.select()).all()) for table in Base.metadata.sorted_tables]
    dump = "".join(found).encode() + b"".join(map(content, world.data.root.glob("platform.db*")))
    assert row.digest.encode() in dump
    assert text.split("_", 2)[2].encode() not in dump


# S4, S10


@pytest.fixture
def signed_in(world):
    user_id, _ = world.user("web@example.org")
    with world.database.write() as session:
        link = logins.create_link(session, user_id)
    with world.client() as client:
        own = {"Origin": world.url}
        assert client.post("/login", json={"token": link}, headers=own).status_code == 200
        assert client.post("/login", json={"token": link}, headers=own).status_code == 401
        yield client


def test_a_link_is_not_used_up_by_looking_at_it(world):
    user_id, _ = world.user("look@example.org")
    with world.database.write() as session:
        link = logins.create_link(session, user_id)
    with world.client() as client:
        for _ in range(3):
            page = client.get("/login", params={"token": link})
            assert page.status_code == 200
        assert "<script" not in client.get("/login", params={"token": '"><script>'}).text
        form = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "text/html"}
        answer = client.post("/login", content=f"token={link}", headers=form)
        assert (answer.status_code, answer.headers["location"]) == (303, "/")
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "samesite=lax" in cookie.lower()
        assert "Secure" not in cookie
        assert client.get("/v1/whoami").json()["via"] == "session"


def test_logging_out_ends_the_session_everywhere(world, signed_in):
    token = signed_in.cookies["benchmax_session"]
    assert signed_in.get("/v1/whoami").status_code == 200
    assert signed_in.post("/logout", headers={"Origin": world.url}).status_code == 200
    with world.client(cookies={"benchmax_session": token}) as again:
        assert again.get("/v1/whoami").status_code == 401


def test_other_cookies_of_the_host_do_not_sign_anybody_out(world, signed_in):
    """Browsers share cookies between the ports of a host, and other servers write what they like into theirs."""
    token = signed_in.cookies["benchmax_session"]
    for other in ('theme={"dark":true}', "a b=c", "plain", "=", 'x="y'):
        for cookies in (f"{other}; benchmax_session={token}", f"benchmax_session={token}; {other}"):
            status, _, text = world.raw("GET", "/v1/whoami", [("Host", "127.0.0.1"), ("Cookie", cookies)])
            assert status == 200, (cookies, text)


def test_a_planted_session_id_is_not_taken_over(world):
    user_id, _ = world.user("fix@example.org")
    with world.database.write() as session:
        link = logins.create_link(session, user_id)
    with world.client(cookies={"benchmax_session": "planted"}) as client:
        client.post("/login", json={"token": link}, headers={"Origin": world.url})
        assert client.cookies.get("benchmax_session", domain="127.0.0.1") != "planted"
    with world.database.read() as session:
        assert session.get(Login, tokens.digest("planted")) is None


@pytest.mark.timeout(400)  # slow on purpose: each of two dozen passwords costs a good part of a second
def test_passwords_are_argon2id_and_lock_after_ten_failures(world):
    user_id, _ = world.user("pw@example.org")
    with pytest.raises(UsageError, match="10 to 1,000"):
        world.set_password(user_id, "short")
    world.set_password(user_id, "correct horse battery")
    with world.database.read() as session:
        assert users.by_email(session, "pw@example.org").password_hash.startswith("$argon2id$")
    check = passwords.check_password
    assert check(world.database, "PW@example.org", "correct horse battery", "1.1.1.1")
    words = set()
    for email in ("pw@example.org", "nobody@example.org"):
        for _ in range(lockout.LOCK_FAILURES):
            with pytest.raises(passwords.Refused) as caught:
                check(world.database, email, "wrong", "1.1.1.1")
            words.add((caught.value.status_code, caught.value.detail))
    assert len(words) == 1  # an unknown user and a wrong password read the same
    with pytest.raises(passwords.Refused) as caught:
        check(world.database, "pw@example.org", "correct horse battery", "1.1.1.1")
    assert caught.value.status_code == 429
    assert check(world.database, "pw@example.org", "correct horse battery", "2.2.2.2")


# S5


def test_beyond_loopback_needs_a_password(tmp_path):
    with LiveServer(tmp_path) as server:
        open_to_all = ServerSettings(data=server.data, host="0.0.0.0", port=server.port)
        assert ServerSettings(data=server.data).host == "127.0.0.1"
        with pytest.raises(UsageError, match="no user has a password"):
            app.prepare(open_to_all, server.database)
        user_id, _ = server.user("admin@example.org", role="admin")
        server.set_password(user_id, "a long password")
        assert app.prepare(open_to_all, server.database).startswith("http://127.0.0.1:")


# S37


def test_deeds_are_in_the_audit_log_and_stay(world):
    user_id, key = world.user("audit@example.org")
    with world.client(key) as client:
        made = client.post("/v1/keys", json={"name": "k"}).json()
        client.delete(f"/v1/keys/{made['id']}")
        client.put("/v1/secrets/A", json={"value": "canary-audit"})
        log = client.get("/v1/audit")
        entries = log.json()["entries"]
        assert [entry["action"] for entry in entries] == ["secret.set", "key.revoke", "key.create"]
        assert {entry["userId"] for entry in entries} == {user_id}
        assert entries[0]["address"] == "127.0.0.1"
        assert entries[0]["actor"] == f"key:{key[3:11]}"
        assert "canary-audit" not in log.text
        for method in ("DELETE", "PUT", "PATCH", "POST"):
            assert client.request(method, "/v1/audit").status_code == 405
    _, admin = world.user("boss@example.org", role="admin")
    with world.client(admin) as client:
        assert len(client.get("/v1/audit").json()["entries"]) >= 3
    with world.database.read() as session:
        assert session.get(Audit, entries[0]["id"]) is not None


# S23


@pytest.mark.parametrize(
    "path",
    [
        "/assets/../../outside.txt",
        "/assets/%2e%2e/%2e%2e/outside.txt",
        "/assets/..%2f..%2foutside.txt",
        "/assets/%252e%252e/outside.txt",
        "/assets/....//outside.txt",
        "/assets/..\\..\\outside.txt",
        "/assets/link",
        "/assets//etc/passwd",
        "/assets/%00",
        "/assets/",
    ],
)
def test_only_the_consoles_own_files_are_served(world, path):
    status, _, text = world.raw("GET", path)
    assert status in (400, 404), text
    assert "canary" not in text
    assert "root:" not in text


def test_the_console_is_served_under_its_addresses(world):
    with world.client() as client:
        assert client.get("/assets/a.js").text == "1"
        for path in ("/", "/experiments/run_x", "/settings"):
            assert "console" in client.get(path).text
