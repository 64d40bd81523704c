"""The rest of the platform from Python: environments, datasets, users, checkpoints, logs. Part of `TrainerClient`."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from benchmax.errors import UsageError
from benchmax.files.archives import unpack_tar
from benchmax.platform.sdk.exceptions import TrainerError
from benchmax.platform.sdk.transport import Connection, failure

PAGE = 1000
POLL_SECONDS = 0.5


class ResourceMethods(Connection):
    """Methods whose answers are the wire's own objects, as dictionaries."""

    # Runs

    def change_run(self, run_id: str, **changes: Any) -> dict[str, Any]:
        """Change `name`, `tags`, `notes`, `pinned`, `archived` or `is_public`; what is not given stays."""
        return dict(self._json("PATCH", run_path(run_id), json=changes))

    def get_run_config(self, run_id: str) -> dict[str, Any]:
        """The launch arguments, which of them were given, and every setting they became."""
        return dict(self._get(run_path(run_id, "config")))

    def get_run_system(self, run_id: str, *, limit: int = 720) -> dict[str, Any]:
        """`{points, now}`: what the run's processes used of the machine."""
        return dict(self._get(run_path(run_id, "system"), limit=limit))

    def get_run_logs(
        self, run_id: str, process: str = "child", *, level: str | None = None, after: int | str = 0, limit: int = PAGE,
        tail: bool = False,
    ) -> dict[str, Any]:  # fmt: skip
        """`{lines, nextCursor, more}` of one process (trainer, environment, child); pass `nextCursor` on as `after`."""
        path = run_path(run_id, "logs")
        return dict(self._get(path, process=process, level=level, after=after, limit=limit, tail=tail or None))

    def iter_run_logs(
        self, run_id: str, process: str = "child", *, level: str | None = None
    ) -> Iterator[dict[str, Any]]:
        """Every line one process has written so far."""
        after, more = "0", True
        while more:
            page = self.get_run_logs(run_id, process, level=level, after=after)
            yield from page["lines"]
            after, more = page["nextCursor"], page["more"]

    def iter_environment_logs(self, run_id: str, *, rollout_id: str | None = None) -> Iterator[dict[str, Any]]:
        """Everything the environment logged, oldest first."""
        cursor: str | None = "0"
        while cursor is not None:
            found = self._get(run_path(run_id, "environment-logs"), rolloutId=rollout_id, limit=PAGE, cursor=cursor)
            yield from found["logs"]
            cursor = found.get("nextCursor")

    def get_comparison_summary(
        self, run_id: str, external_eval_id: str | None = None, *, other_run_id: str | None = None
    ) -> dict[str, Any]:
        """`{n, components}`: the run's latest eval against another's, each component paired by example."""
        path = run_path(run_id, "rollouts/comparison/summary")
        return dict(self._get(path, externalEvalId=external_eval_id, otherRunId=other_run_id))

    def launch_environment(
        self,
        environment: str,
        dataset_path: str | None = None,
        *,
        eval_share: float | None = None,
        name: str | None = None,
        launcher_args: Mapping[str, Any] | None = None,
    ) -> str:
        """Launch a run on an environment of `list_environments` and one dataset, which is split; gives the run's id."""
        named = {"environment": environment, "dataset_path": dataset_path, "eval_share": eval_share}
        args = {**(launcher_args or {}), **{key: value for key, value in named.items() if value is not None}}
        return str(self._json("POST", "/v1/train/runs/launch", json={"name": name, "args": args})["runId"])

    def fork_run(
        self,
        run_id: str,
        checkpoint: str = "best",
        *,
        name: str | None = None,
        launcher_args: Mapping[str, Any] | None = None,
    ) -> str:
        """Launch a run that begins with a checkpoint's weights; gives its id. Arguments that are named change."""
        body = {"checkpoint": checkpoint, "name": name, "args": dict(launcher_args or {})}
        return str(self._json("POST", run_path(run_id, "fork"), json=body)["runId"])

    def rescore_run(self, run_id: str, *, environment: str | None = None, name: str = "") -> dict[str, Any]:
        """Queue the latest eval's rollouts to be scored again, by the run's environment or another; gives the eval."""
        body = {"environment": environment, "name": name}
        return dict(self._json("POST", run_path(run_id, "rescore"), json=body))

    def launch_sft_run(
        self,
        dataset_path: str,
        *,
        model: str | None = None,
        name: str | None = None,
        launcher_args: Mapping[str, Any] | None = None,
        eval_rows: int = 0,
    ) -> str:
        """Launch a supervised run on uploaded chats; gives its id."""
        body = {
            "name": name,
            "dataset": {"path": dataset_path, "format": Path(dataset_path).suffix.removeprefix(".")},
            "model": model,
            "args": dict(launcher_args or {}),
            "eval": {"rows": eval_rows},
        }
        return str(self._json("POST", "/v1/train/runs/sft", json=body)["runId"])

    # Checkpoints

    def download_checkpoint(
        self, run_id: str, out: str | os.PathLike[str], checkpoint: str = "best", *, format: str = "merged"
    ) -> str:
        """Write a checkpoint's model (`merged`) or LoRA adapter (`adapter`) into a folder; gives the checkpoint's name.

        The platform makes it when it is asked for first, which takes a while.
        """
        folder = Path(out)
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise UsageError(f"{folder} is not empty. Choose another folder, or remove it first.")
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".benchmax-", dir=folder.parent) as work:
            tar = Path(work) / "checkpoint.tar"
            path = run_path(run_id, f"checkpoints/{quote(checkpoint, safe='')}/download?format={format}&wait=30")
            while not self._fetch(path, tar):
                time.sleep(POLL_SECONDS)
            unpack_tar(tar, Path(work) / "files")
            tops = list((Path(work) / "files").iterdir())
            if len(tops) != 1 or not tops[0].is_dir():
                raise UsageError("The archive holds no single folder. Do not trust who made it.")
            top = tops[0]
            if folder.exists():
                folder.rmdir()
            shutil.move(top, folder)
        return top.name.removesuffix(f"-{format}")

    def _fetch(self, path: str, out: Path) -> bool:
        """Stream an answer into a file; False when the platform still makes it."""
        import httpx2

        headers = {"Authorization": f"Bearer {self._token()}"}
        try:
            with self._http.stream("GET", self.base_url + path, headers=headers, timeout=120.0) as answer:
                if answer.status_code == 202:
                    return False
                if not answer.is_success:
                    answer.read()
                    raise failure(answer)
                with open(out, "wb") as file:
                    for piece in answer.iter_bytes(1 << 20):
                        file.write(piece)
        except httpx2.TransportError as error:
            raise TrainerError(f"The download from {self.base_url} broke off: {error!r}. Try it again.") from error
        return True

    # Environments

    def list_environments(self) -> list[dict[str, Any]]:
        """The built-in environments, then your uploads, newest first."""
        return list(self._get("/v1/environments")["environments"])

    def get_environment(self, environment_id: str) -> dict[str, Any]:
        """One environment with its source and manifest."""
        return dict(self._get(_environment(environment_id)))

    def examine_environment(self, environment_id: str, *, dataset_path: str | None = None) -> dict[str, Any]:
        """Have the doctor look at an environment on the platform, and wait for its report."""
        body = {"datasetPath": dataset_path}
        started = self._json("POST", f"{_environment(environment_id)}/doctor", json=body)["reportId"]
        while True:
            report: dict[str, Any] = self._get(f"{_environment(environment_id)}/doctor/{started}")
            if report["status"] in ("complete", "failed"):
                return report
            time.sleep(POLL_SECONDS)

    # Datasets

    def list_datasets(self) -> list[dict[str, Any]]:
        return list(self._get("/v1/datasets")["datasets"])

    def create_dataset(self, name: str, content: bytes) -> dict[str, Any]:
        """Store CSV, TSV, JSON, JSON lines or Parquet under `datasets/NAME`; gives a preview with what is wrong.

        Letters of the name that are not plain become `-`; the `path` of the answer is the name it got.
        """
        return dict(self._json("POST", f"/v1/datasets?name={quote(name, safe='')}", content=content))

    def add_dataset_row(self, path: str, row: Mapping[str, Any]) -> dict[str, Any]:
        """Add a row to a dataset, as a new version of it; gives `{path, rows}`."""
        return dict(self._json("POST", "/v1/datasets/rows", json={"path": path, "row": dict(row)}))

    def delete_dataset(self, path: str) -> dict[str, Any]:
        return dict(self._json("DELETE", f"/v1/datasets?path={quote(path, safe='')}"))

    # Users

    def list_users(self) -> list[dict[str, Any]]:
        """Everyone, for an administrator; yourself, for others."""
        return list(self._get("/v1/users")["users"])

    def create_user(self, name: str, password: str, *, role: str = "member") -> dict[str, Any]:
        return dict(self._json("POST", "/v1/users", json={"name": name, "password": password, "role": role}))

    def delete_user(self, user_id: str) -> dict[str, Any]:
        """Remove a user, and have their runs deleted."""
        return dict(self._json("DELETE", f"/v1/users/{quote(user_id, safe='')}"))

    def change_password(self, current: str, new: str) -> dict[str, Any]:
        """Set another password of your own; every session in a browser ends, keys stay."""
        return dict(self._json("POST", "/v1/password", json={"currentPassword": current, "newPassword": new}))

    def sign_out_everywhere(self, *, keys: bool = False) -> dict[str, Any]:
        """End every session of yours in a browser; with `keys`, revoke every other API key too."""
        return dict(self._json("POST", "/v1/sign-out", json={"keys": keys}))

    # Model servers to evaluate against, and secrets of runs

    def list_endpoints(self) -> list[dict[str, Any]]:
        """Your model servers, without their keys."""
        return list(self._get("/v1/endpoints")["endpoints"])

    def create_endpoint(self, name: str, base_url: str, model: str, *, api_key: str = "") -> dict[str, Any]:
        """Name an OpenAI-compatible server; its `id` makes `endpoint:ID`. The key is kept encrypted."""
        body = {"name": name, "baseUrl": base_url, "model": model, "apiKey": api_key}
        return dict(self._json("POST", "/v1/endpoints", json=body))

    def delete_endpoint(self, endpoint_id: str) -> dict[str, Any]:
        """Forget a model server and its key."""
        return dict(self._json("DELETE", f"/v1/endpoints/{quote(endpoint_id, safe='')}"))

    def list_secrets(self) -> list[dict[str, Any]]:
        """Names of your secrets; values are never given back."""
        return list(self._get("/v1/secrets")["secrets"])

    def set_secret(self, name: str, value: str) -> dict[str, Any]:
        """Store a secret, or put another in its place; your runs get it as an environment variable."""
        return dict(self._json("PUT", f"/v1/secrets/{quote(name, safe='')}", json={"value": value}))

    def delete_secret(self, name: str) -> dict[str, Any]:
        return dict(self._json("DELETE", f"/v1/secrets/{quote(name, safe='')}"))

    # Webhooks

    def list_webhooks(self) -> list[dict[str, Any]]:
        """Addresses that are told of your runs, each with the newest message to it; never their secrets."""
        return list(self._get("/v1/webhooks")["webhooks"])

    def create_webhook(self, url: str, *, events: Sequence[str] = ("run.ended", "run.alert")) -> dict[str, Any]:
        """Have an address told of alerts and ends of your runs; `secret`, which signs them, is in this answer alone."""
        return dict(self._json("POST", "/v1/webhooks", json={"url": url, "events": list(events)}))

    def delete_webhook(self, webhook_id: str) -> dict[str, Any]:
        return dict(self._json("DELETE", _webhook(webhook_id)))

    def test_webhook(self, webhook_id: str) -> dict[str, Any]:
        """Send a message that tells of nothing; `list_webhook_deliveries` shows what comes of it."""
        return dict(self._json("POST", f"{_webhook(webhook_id)}/test"))

    def list_webhook_deliveries(self, webhook_id: str) -> list[dict[str, Any]]:
        """What was sent there and what came of it, newest first."""
        return list(self._get(f"{_webhook(webhook_id)}/deliveries")["deliveries"])


def run_path(run_id: str, part: str = "") -> str:
    path = f"/v1/train/runs/{quote(run_id, safe='')}"
    return f"{path}/{part}" if part else path


def _environment(environment_id: str) -> str:
    return f"/v1/environments/{quote(environment_id, safe='')}"


def _webhook(webhook_id: str) -> str:
    return f"/v1/webhooks/{quote(webhook_id, safe='')}"
