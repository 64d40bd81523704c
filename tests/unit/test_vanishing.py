"""Files, folders and descriptors of living processes may go between a look at their names and a look at them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmax.files import logs
from benchmax.inference.weights import store
from benchmax.inference.weights.download import tree_size
from benchmax.platform.runner.children import export_child
from living import content, files_under, listening_port, mode, paths_under, proportional_memory

RESTLESS = """
import os, shutil, socket, sys
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
while True:
    os.makedirs("a/b/c", exist_ok=True)
    for name in ("a/one.whl", "a/b/two.whl", "a/b/c/three.whl"):
        open(name, "w").close()
    shutil.rmtree("a")
"""
LOOKS = 100


@contextmanager
def restless(folder: Path) -> Iterator[tuple[int, int]]:
    """A process that listens, and makes and removes files in a folder; gives its pid and its port."""
    process = subprocess.Popen([sys.executable, "-c", RESTLESS], cwd=folder, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.pid, int(process.stdout.readline())
    finally:
        process.kill()
        process.communicate()


def test_looking_at_a_restless_process(tmp_path: Path) -> None:
    with restless(tmp_path) as (pid, port):
        for _ in range(LOOKS):
            assert listening_port(pid) == port
            assert {content(path) for path in files_under(tmp_path)} <= {b""}
            assert all(mode(path) <= 0o777 for path in paths_under(tmp_path))
            assert tree_size(tmp_path, ".whl") == 0
        assert proportional_memory([pid]) > 0
    assert proportional_memory([pid]) == 0


def test_a_model_that_goes_while_models_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCHMAX_HOME", str(tmp_path))
    card = store.models_dir() / "gone" / store.CARD
    card.parent.mkdir(parents=True)
    card.symlink_to("nowhere")  # as it is after its name was listed
    assert store.list_models() == []
    assert store.read_card(card.parent) is None


def test_logs_and_exports_that_another_process_removes(tmp_path: Path) -> None:
    assert logs.file_size(tmp_path / "server.log") == 0
    newest, gone = tmp_path / "new.tar", tmp_path / "gone.tar"
    newest.touch()
    gone.symlink_to("nowhere")
    export_child._forget_old(newest)
    assert newest.exists()
