"""SkyRL's own Tinker server on the CPU, in the lane beside this one, started as the page says."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
LANE = ROOT / ".lanes" / "tinker-server"
SHAPES = {"max_lora_adapters": 16, "max_lora_rank": 16, "sample_max_num_sequences": 32, "train_micro_batch_size": 8}
"""Batches of one size each: JAX compiles for every other one."""
START_SECONDS = 300


class SkyrlServer:
    """A server process and its engine, with all that they write in one folder."""

    def __init__(self, model: Path, folder: Path) -> None:
        self.model, self.folder = model, folder
        folder.mkdir(parents=True, exist_ok=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.start()

    def start(self) -> None:
        """Start it; also again, with what it had saved."""
        words = {
            "backend": "jax", "base-model": str(self.model), "backend-config": json.dumps(SHAPES),
            "database-url": f"sqlite:///{self.folder / 'server.db'}",
            "checkpoints-base": str(self.folder / "checkpoints"), "port": str(self.port),
        }  # fmt: skip
        python = LANE / "bin" / "python"
        assert python.exists(), "Build the server's lane first: python scripts/trainer_lane.py tinker-server --build"
        self.command = [str(python), str(ROOT / "examples" / "tinker" / "skyrl_server.py")]
        self.command += [word for name, value in words.items() for word in (f"--{name}", value)]
        quiet = {"HF_HUB_OFFLINE": "1", "JAX_PLATFORMS": "cpu", "JAX_COMPILATION_CACHE_DIR": str(LANE / "compiled"),
                 "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}  # fmt: skip
        self._log = (self.folder / "server.log").open("ab")
        self._process = subprocess.Popen(
            self.command, env={**os.environ, **quiet}, stdout=self._log, stderr=self._log, start_new_session=True
        )
        self._wait()

    def kill(self) -> None:
        """End it at once, with its engine."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._log.close()

    def log(self) -> str:
        return (self.folder / "server.log").read_text("utf-8", errors="replace")

    def _wait(self) -> None:
        until = time.monotonic() + START_SECONDS
        while True:
            try:
                with urllib.request.urlopen(f"{self.url}/api/v1/healthz", timeout=5):
                    return
            except OSError:
                if self._process.poll() is not None or time.monotonic() > until:
                    self.kill()
                    raise AssertionError(f"SkyRL's server did not start:\n{self.log()[-3000:]}") from None
                time.sleep(0.5)
