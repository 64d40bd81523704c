"""What a launch may name in place of four uploads: an environment of the catalogue, and one dataset to be split.

`environment` stands for the two paths of a bundle, `dataset_path` with `eval_share` for the two of its rows. It names a
file, or a folder in which the two are. The split rows become blobs of their own, so that the run is made of exactly
four files, as any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Any, NamedTuple

from benchmax import limits
from benchmax.envs.composed.parts import mixed_part
from benchmax.envs.datasets.split import HELD_OUT_SHARE, held_out_of_parts
from benchmax.envs.datasets.usable_rows import check_count
from benchmax.errors import NotFoundError, UsageError
from benchmax.platform.server.server_services import Services
from benchmax.platform.server.services import catalogue
from benchmax.platform.server.services.catalogue import Environment
from benchmax.platform.server.services.datasets import dataset_files
from benchmax.platform.server.services.datasets.preview import OWN_CODE
from benchmax.platform.server.services.datasets.stored_rows import StoredRows
from benchmax.platform.server.services.runs.launch_checks import SPLIT_FROM, Assets, row_reader
from benchmax.platform.store.uploads import blobs
from benchmax.platform.store.uploads.uploads import SPLITS
from benchmax.platform.wire.launches import SFT_FORMAT, SftDataset

SOURCES = ("environment", "dataset_path", "eval_share")
_BUNDLE = ("env_cls_path", "env_metadata_path")


def resolve(services: Services, owner_id: str, args: Mapping[str, Any]) -> dict[str, Any]:
    """The same arguments with the four paths in place of `environment`, `dataset_path` and `eval_share`."""
    _refuse_both(args, "environment", "env_cls_path", "env_metadata_path")
    _refuse_both(args, "dataset_path", "train_dataset_path", "eval_dataset_path")
    resolved = {name: value for name, value in args.items() if name not in SOURCES and value is not None}
    environment = _environment(services, owner_id, args.get("environment"))
    if environment is not None:
        with services.database.write() as db:
            resolved |= catalogue.bundle_paths(db, services.blobs, owner_id, environment)
    if "train_dataset_path" not in resolved:
        resolved |= _datasets(services, owner_id, args, environment, _reader(services, owner_id, resolved))
    elif args.get("eval_share") is not None:
        raise UsageError("eval_share goes with dataset_path. Leave it out when both datasets are given.")
    return resolved


class Sources(NamedTuple):
    """What a run is made of."""

    paths: dict[str, str]
    blobs: dict[str, str]
    """What the run keeps of its uploads."""
    rows: int
    """To train on."""
    warnings: list[str]


def checked_sources(services: Services, owner_id: str, args: Mapping[str, Any]) -> Sources:
    """The four files of a launch; an error for what the run would refuse."""
    named = resolve(services, owner_id, args)
    assets = Assets(services, owner_id, named)
    assets.check_bundle()
    held_out = assets.count("eval_dataset_path")
    given = held_out > 0
    if not given:
        split = _split(services, owner_id, assets.rows("train_dataset_path").read, HELD_OUT_SHARE)
        assets = Assets(services, owner_id, named | split)
        held_out = assets.count("eval_dataset_path")
    rows = assets.count("train_dataset_path")
    check_count(rows, "Nothing was launched.")
    warnings = []
    if rows < limits.GOOD_TRAIN_ROWS:
        warnings.append(f"Only {rows} training rows; {limits.GOOD_TRAIN_ROWS} or more are recommended.")
    if not given:
        aside = f"{held_out} of the training rows are held out" if held_out else "there are too few to hold any out"
        warnings.append(f"The eval dataset has no rows; {aside}.")
    split_from = {SPLIT_FROM: str(args["dataset_path"])} if args.get("dataset_path") else {}
    return Sources(assets.paths, assets.recorded() | split_from, rows, warnings)


def supervised_rows(services: Services, owner_id: str, dataset: SftDataset, held_out: int) -> tuple[str, str, int, int]:
    """The one file a supervised run learns from; the two of a folder become one, its eval rows the last.

    Returns its path, its SHA-256, its rows, and how many of them, the last ones, are held out.
    """
    train, other = _splits(services, owner_id, dataset.path)
    # What the published format's digest covers is not documented.
    plain = dataset.format != SFT_FORMAT and dataset.digest
    if plain and plain.removeprefix("sha256:") != train.sha256:
        raise UsageError(f"{train.path} is not the file its digest describes. Upload it again.")
    rows = train.check_sft()
    if other is None:
        return train.path, train.sha256, rows, held_out
    aside = other.check_sft()
    joined = dataset_files.store_rows(services.blobs, chain(train.read(), other.read()))
    where = f"{SPLITS}{joined[0][:16]}/train.jsonl"
    with services.database.write() as db:
        dataset_files.name(db, owner_id, where, *joined)
    return where, joined[0], rows + aside, aside


def _splits(services: Services, owner_id: str, path: str) -> tuple[StoredRows, StoredRows | None]:
    """The rows to train on, and those held out where they are a file of their own."""
    found = dataset_files.splits_of(services, owner_id, path)
    if "train" not in found:
        raise NotFoundError(dataset_files.NOT_THERE)
    return found["train"], found.get("eval")


def _reader(services: Services, owner_id: str, args: Mapping[str, Any]) -> str:
    """Whose columns the rows must have, by the two files of the environment; any, where those are not there."""
    with services.database.read() as db:
        found = [blobs.find(db, owner_id, str(args.get(name) or "")) for name in _BUNDLE]
    pickled, manifest = found
    return row_reader(services.blobs, pickled[1].sha256, manifest[1].sha256) if pickled and manifest else OWN_CODE


def _refuse_both(args: Mapping[str, Any], one: str, *others: str) -> None:
    both = [name for name in others if args.get(name) is not None]
    if args.get(one) is not None and both:
        raise UsageError(f"args has {one} and {both[0]}. Give one or the other.")


def _environment(services: Services, owner_id: str, name: Any) -> Environment | None:
    if name is None:
        return None
    if not isinstance(name, str):
        raise UsageError("args.environment must be the id of an environment. `list_environments` shows them.")
    with services.database.read() as db:
        return catalogue.find(db, owner_id, name)


def _datasets(
    services: Services, owner_id: str, args: Mapping[str, Any], environment: Environment | None, reader: str
) -> dict[str, str]:
    """Split the rows; nothing when there are none to split, and the check for four paths says what is missing."""
    path, share = args.get("dataset_path"), args.get("eval_share")
    share = HELD_OUT_SHARE if share is None else share
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 0.9:
        raise UsageError("args.eval_share must be a number from 0 to 0.9: the share of rows that is held out.")
    if path is None:
        own = catalogue.own_dataset(environment) if environment is not None else None
        return {} if own is None else _split(services, owner_id, lambda: own, share)
    if not isinstance(path, str):
        raise UsageError("args.dataset_path must be the path of an upload. `list_datasets` shows them.")
    train, held_out = _splits(services, owner_id, path)
    if held_out is not None:
        return {"train_dataset_path": train.path, "eval_dataset_path": held_out.path}
    check_count(train.check(reader), "Nothing was launched.")
    return _split(services, owner_id, train.read, share)


def _split(
    services: Services, owner_id: str, read: Callable[[], Iterable[dict[str, Any]]], share: float
) -> dict[str, str]:
    """Three passes over the rows, none of which holds them all."""
    aside = held_out_of_parts(map(mixed_part, read()), share)
    train = dataset_files.store_rows(services.blobs, (row for at, row in enumerate(read()) if at not in aside))
    held_out = dataset_files.store_rows(services.blobs, (row for at, row in enumerate(read()) if at in aside))
    folder = f"{SPLITS}{train[0][:8]}{held_out[0][:8]}"
    paths = {"train_dataset_path": f"{folder}/train.jsonl", "eval_dataset_path": f"{folder}/eval.jsonl"}
    with services.database.write() as db:
        for path, stored in zip(paths.values(), (train, held_out), strict=True):
            dataset_files.name(db, owner_id, path, *stored)
    return paths
