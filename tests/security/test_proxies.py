"""Behind a proxy: its headers are believed when it is a named one, and nobody else's are (S38)."""

from __future__ import annotations

import httpx2
import pytest

from benchmax.platform.server.security.passwords import hash_password
from benchmax.platform.store.accounts import audit, users
from server_process import ServerProcess

PASSWORD = "a long password of mine"


class Server(ServerProcess):
    """The program itself: what it does with such headers is in how it starts uvicorn."""

    def __init__(self, folder, *options):
        super().__init__(folder, *options)
        with self.database.write() as session:
            user = users.ensure_user(session, "me@example.org")
            users.set_password_hash(session, user.id, hash_password(PASSWORD))

    def post(self, path, headers, **more):
        url = f"http://127.0.0.1:{self.port}{path}"
        return httpx2.post(url, headers=headers, timeout=60, follow_redirects=False, **more)

    def sign_in(self, password=PASSWORD, **headers):
        form = {"email": "me@example.org", "password": password}
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.post("/login", {"Host": "127.0.0.1", **headers}, data=form)


@pytest.fixture(scope="module", params=["no proxy", "a proxy"])
def server(request, tmp_path_factory):
    options = ["--trusted-proxy", "127.0.0.1"] if request.param == "a proxy" else []
    with Server(tmp_path_factory.mktemp("proxied"), *options) as made:
        made.trusts = bool(options)
        yield made


def test_who_says_https_is_believed_only_if_trusted(server):
    cookie = server.sign_in(X_Forwarded_Proto="https").headers.get("set-cookie", "")
    assert "benchmax_session=" in cookie
    assert ("secure" in cookie.lower()) is server.trusts
    own = server.sign_in(Origin="https://127.0.0.1", X_Forwarded_Proto="https")
    assert (own.status_code == 403) is not server.trusts


def test_another_host_is_refused_whatever_is_forwarded(server):
    for name in ("X-Forwarded-Host", "Forwarded", "X-Original-Host", "X-Host"):
        value = "host=127.0.0.1" if name == "Forwarded" else "127.0.0.1"
        answer = httpx2.get(f"http://127.0.0.1:{server.port}/healthz", headers={"Host": "evil.test", name: value})
        assert answer.status_code == 421


def test_addresses_that_callers_make_up_are_not_counted(server):
    """A caller may put anything before what the proxy adds: only the proxy's own word tells them apart."""
    statuses = [
        server.sign_in("wrong", X_Forwarded_For=f"203.0.113.{number}, 198.51.100.7").status_code for number in range(12)
    ]
    assert 429 in statuses, "the limit was evaded by making up addresses"
    assert statuses[:5] == [401] * 5 or 429 in statuses[:5]
    other = server.sign_in("wrong", X_Forwarded_For="198.51.100.8").status_code
    assert (other == 401) is server.trusts, "whom the proxy names is another"


def test_the_record_names_the_caller(server):
    server.sign_in(X_Forwarded_For="198.51.100.99")
    with server.database.read() as session:
        seen = {row.address for row in audit.page(session, limit=1000)}
    assert ("198.51.100.99" in seen) is server.trusts
    assert "127.0.0.1" in seen or server.trusts


def test_the_address_users_see_is_one_of_the_servers_names(tmp_path):
    """A proxy passes on the name that was asked for."""
    options = ("--public-url", "https://Bench.example.org/", "--trusted-proxy", "127.0.0.1")
    with Server(tmp_path, *options) as server:
        answer = server.sign_in(Host="bench.example.org", Origin="https://bench.example.org", X_Forwarded_Proto="https")
        assert answer.status_code == 200
        assert "secure" in answer.headers["set-cookie"].lower()
        assert server.sign_in(Host="bench.example.org.evil.test").status_code == 421
