"""What a launch may name in place of four uploads: an environment of the catalogue, and one dataset to be split.

`environment` stands for the two paths of a bundle, `dataset_path` with `eval_share` for the two of its rows. The split
rows become blobs of their own, so that the run is made of exactly four files, as any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

from benchmax.errors import UsageError
from benchmax.platform.server import catalogue, datasets
from benchmax.platform.server.catalogue import Environment
from benchmax.platform.server.platform import Platform
from benchmax.platform.store.libraries import SPLITS

SOURCES = ("environment", "dataset_path", "eval_share")
EVAL_SHARE = 0.2

T = TypeVar("T")


def resolve(here: Platform, owner_id: str, args: Mapping[str, Any]) -> dict[str, Any]:
    """The same arguments with the four paths in place of `environment`, `dataset_path` and `eval_share`."""
    _refuse_both(args, "environment", "env_cls_path", "env_metadata_path")
    _refuse_both(args, "dataset_path", "train_dataset_path", "eval_dataset_path")
    resolved = {name: value for name, value in args.items() if name not in SOURCES and value is not None}
    environment = _environment(here, owner_id, args.get("environment"))
    if environment is not None:
        with here.database.write() as session:
            resolved |= catalogue.bundle_paths(session, here.blobs, owner_id, environment)
    if "train_dataset_path" not in resolved:
        resolved |= _datasets(here, owner_id, args, environment)
    elif args.get("eval_share") is not None:
        raise UsageError("eval_share goes with dataset_path. Leave it out when both datasets are given.")
    return resolved


def _refuse_both(args: Mapping[str, Any], one: str, *others: str) -> None:
    both = [name for name in others if args.get(name) is not None]
    if args.get(one) is not None and both:
        raise UsageError(f"args has {one} and {both[0]}. Give one or the other.")


def _environment(here: Platform, owner_id: str, name: Any) -> Environment | None:
    if name is None:
        return None
    if not isinstance(name, str):
        raise UsageError("args.environment must be the id of an environment. `list_environments` shows them.")
    with here.database.read() as session:
        return catalogue.find(session, owner_id, name)


def _datasets(
    here: Platform, owner_id: str, args: Mapping[str, Any], environment: Environment | None
) -> dict[str, str]:
    """Split the rows; nothing when there are none to split, and the check for four paths says what is missing."""
    path, share = args.get("dataset_path"), args.get("eval_share")
    share = EVAL_SHARE if share is None else share
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 0.9:
        raise UsageError("args.eval_share must be a number from 0 to 0.9: the share of rows that is held out.")
    if path is None:
        own = catalogue.own_dataset(environment) if environment is not None else None
        return {} if own is None else _split(here, owner_id, lambda: own, share)
    if not isinstance(path, str):
        raise UsageError("args.dataset_path must be the path of an upload. `list_datasets` shows them.")
    with here.database.read() as session:
        sha256 = datasets.find(session, owner_id, path)[1].sha256
    return _split(here, owner_id, lambda: datasets.rows(here.blobs, sha256, path), share)


def _split(here: Platform, owner_id: str, rows: Any, share: float) -> dict[str, str]:
    """Three passes over the rows, none of which holds them all."""
    count = sum(1 for _ in rows())
    aside = datasets.held_out(count, share)
    train = datasets.store_rows(here.blobs, _chosen(rows(), lambda at: at not in aside))
    held_out = datasets.store_rows(here.blobs, _chosen(rows(), lambda at: at in aside))
    folder = f"{SPLITS}{train[0][:8]}{held_out[0][:8]}"
    paths = {"train_dataset_path": f"{folder}/train.jsonl", "eval_dataset_path": f"{folder}/eval.jsonl"}
    with here.database.write() as session:
        for path, stored in zip(paths.values(), (train, held_out), strict=True):
            datasets.name(session, owner_id, path, *stored)
    return paths


def _chosen(rows: Iterable[T], wanted: Any) -> Iterator[T]:
    return (row for at, row in enumerate(rows) if wanted(at))
