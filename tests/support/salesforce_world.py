"""For tests of the CRM environment: its examples, and a server with Salesforce's API."""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from benchmax.envs.crm.crm_env import CRMEnvInProcess
from benchmax.envs.crm.org.base import QueryError
from benchmax.envs.crm.org.embedded import EmbeddedOrg
from benchmax.envs.crm.tasks import make_rows
from benchmax.envs.types import Example

PAGE = 50
TOKEN = "00Dsession"


def examples(level: str, rows: int, seed: int = 0) -> list[Example]:
    return [CRMEnvInProcess.dataset_preprocess(row) for row in make_rows(level, rows=rows, seed=seed)]


class SalesforceServer:
    """The part of the REST API that is used, over the records of an embedded org; it can be told to fail."""

    def __init__(self, org: EmbeddedOrg, url: str) -> None:
        self.org, self.url = org, url
        self.asked: list[str] = []
        self.failures: list[tuple[int, dict[str, str], str]] = []
        """Answers to give before any other: status, headers, body."""
        self.gate: threading.Barrier | None = None
        self.inside = self.most_inside = 0
        self.lock = threading.Lock()

    @property
    def variables(self) -> dict[str, str]:
        return {"SALESFORCE_SESSION_ID": TOKEN, "SALESFORCE_INSTANCE_URL": self.url}

    def answer(self, path: str, token: str) -> tuple[int, dict[str, str], str]:
        with self.lock:
            self.asked.append(path)
            if self.failures:
                return self.failures.pop(0)
        if token != f"Bearer {TOKEN}":
            return 401, {}, problem("INVALID_SESSION_ID", "Session expired or invalid")
        address = urlsplit(path)
        try:
            return 200, {}, json.dumps(self._found(address.path, parse_qs(address.query)))
        except QueryError as error:
            return 400, {}, problem(error.code, error.message)

    def _found(self, path: str, given: dict[str, list[str]]) -> Any:
        _, _, what, *rest = path.removeprefix("/services/").split("/")
        if what == "search":
            return {"searchRecords": with_attributes(asyncio.run(self.org.sosl(given["q"][0])))}
        query, start = (given["q"][0], 0) if "q" in given else self._cursor(rest[0])
        rows = asyncio.run(self.org.soql(query))
        if query.upper().startswith("SELECT COUNT()"):
            return {"totalSize": rows[0]["expr0"], "done": True, "records": []}
        page = {"totalSize": len(rows), "done": start + PAGE >= len(rows)}
        if not page["done"]:
            page["nextRecordsUrl"] = f"/services/data/v59.0/query/{query.encode().hex()}-{start + PAGE}"
        return {**page, "records": with_attributes(rows[start : start + PAGE])}

    @staticmethod
    def _cursor(name: str) -> tuple[str, int]:
        query, _, start = name.partition("-")
        return bytes.fromhex(query).decode(), int(start)

    @contextmanager
    def counted(self) -> Iterator[None]:
        with self.lock:
            self.inside += 1
            self.most_inside = max(self.most_inside, self.inside)
        try:
            if self.gate is not None:
                self.gate.wait(60)
            yield
        finally:
            with self.lock:
                self.inside -= 1


def problem(code: str, message: str) -> str:
    return json.dumps([{"errorCode": code, "message": message}])


def with_attributes(value: Any) -> Any:
    """Records as the API writes them."""
    if isinstance(value, list):
        return [with_attributes(each) for each in value]
    if isinstance(value, dict):
        return {"attributes": {"type": "x"}, **{name: with_attributes(each) for name, each in value.items()}}
    return value


@contextmanager
def salesforce_server(org: EmbeddedOrg, folder: Path) -> Iterator[tuple[SalesforceServer, Path]]:
    """A running server, and the certificate to trust it by."""
    certificate = _certificate(folder)
    listener = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    listener.socket.listen(64)  # all who come at once: one that finds no room is let in a second later
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    listener.socket = context.wrap_socket(listener.socket, server_side=True)
    server = SalesforceServer(org, f"https://127.0.0.1:{listener.server_address[1]}")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            with server.counted():
                status, headers, body = server.answer(self.path, self.headers.get("Authorization", ""))
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body.encode()))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *given: Any) -> None:
            pass

    listener.RequestHandlerClass = Handler
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server, certificate
    finally:
        listener.shutdown()
        thread.join()
        listener.server_close()


def _certificate(folder: Path) -> Path:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(1)).not_valid_after(now + timedelta(1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    file = folder / "salesforce.pem"
    form = serialization.Encoding.PEM
    private = key.private_bytes(form, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    file.write_bytes(made.public_bytes(form) + private)
    return file
