"""For tests of what asks a live MediaWiki: a server with the part of its API that is used, over a few articles."""

from __future__ import annotations

import html
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

ARTICLES = {
    "Emi Koussi": 'Emi Koussi is a high  volcano.\n\n\n== Height ==\nIt is 3,415 m high & "old".',
    "Chad": "Chad is a country in Africa. Its highest point is Emi Koussi.",
    "Long": "word " * 10_000,
}
REDIRECTS = {"Emi Kussi": "Emi Koussi"}
Answer = tuple[int, dict[str, str], str]


def busy(code: str, status: int = 200, **headers: str) -> Answer:
    """An error of the API, as it is sent."""
    body = {"error": {"code": code, "info": "Waiting for 10.64.0.1: 6 seconds lagged."}, "servedby": "mw1"}
    return status, {"Content-Type": "application/json", **headers}, json.dumps(body)


@dataclass(slots=True)
class MediaWiki:
    url: str
    asked: list[dict[str, str]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    moments: list[float] = field(default_factory=list)
    failures: list[Answer] = field(default_factory=list)
    """Answers to give before any other."""
    inside: int = 0
    most_inside: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, given: dict[str, str], headers: dict[str, str]) -> Answer:
        with self.lock:
            self.asked.append(given)
            self.headers.append(headers)
            self.moments.append(time.monotonic())
            if self.failures:
                return self.failures.pop(0)
        if given.get("action") != "query" or given.get("format") != "json" or given.get("formatversion") != "2":
            return busy("badvalue")
        query = self._search(given) if given.get("list") == "search" else self._article(given)
        return 200, {"Content-Type": "application/json"}, json.dumps({"batchcomplete": True, "query": query})

    def _search(self, given: dict[str, str]) -> dict[str, Any]:
        words = given["srsearch"].lower().split()
        found = [
            {"ns": 0, "title": title, "snippet": self._snippet(text, words)}
            for title, text in ARTICLES.items()
            if any(word in text.lower() for word in words)
        ]
        return {"searchinfo": {"totalhits": len(found)}, "search": found[: int(given["srlimit"])]}

    @staticmethod
    def _snippet(text: str, words: list[str]) -> str:
        marked = html.escape(text[:80])
        return marked.replace("Emi", '<span class="searchmatch">Emi</span>') if "emi" in words else marked

    @staticmethod
    def _article(given: dict[str, str]) -> dict[str, Any]:
        title = REDIRECTS.get(given["titles"], given["titles"])
        if title not in ARTICLES:
            return {"pages": [{"ns": 0, "title": title, "missing": True}]}
        return {"pages": [{"pageid": 1, "ns": 0, "title": title, "extract": ARTICLES[title]}]}

    @contextmanager
    def counted(self) -> Iterator[None]:
        """One that is inside; it is out before its answer is, for whoever has the answer may ask again."""
        with self.lock:
            self.inside += 1
            self.most_inside = max(self.most_inside, self.inside)
        try:
            time.sleep(0.01)  # so that two that ask at once are seen
            yield
        finally:
            with self.lock:
                self.inside -= 1


@contextmanager
def mediawiki() -> Iterator[MediaWiki]:
    """A running server."""
    listener = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    wiki = MediaWiki(f"http://127.0.0.1:{listener.server_address[1]}/w/api.php")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            given = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
            with wiki.counted():
                status, headers, body = wiki.answer(given, dict(self.headers.items()))
            content = body.encode()
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *given: Any) -> None:
            pass

    listener.RequestHandlerClass = Handler
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield wiki
    finally:
        listener.shutdown()
        thread.join()
        listener.server_close()
