"""Settings as text: TOML and saved JSON files, dotted flags, and the list of all of them.

All errors in a file or on a command line are reported at once, with a guess at the name that was meant;
pydantic-settings, whose flags are argparse's, exits at the first unknown one, and lets environment variables change a
run. TOML is written by hand: every value is JSON that TOML reads too, and tomlkit would need its inline tables built
one by one.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from benchmax.errors import ConfigError, NotFoundError
from benchmax.trainer.config.config_errors import describe
from benchmax.trainer.config.sections import Section, TrainConfig, merge


def load_config(path: Path | str | None = None, flags: Sequence[str] = (), **values: Any) -> TrainConfig:
    """Read a TOML (or saved JSON) file, then let keyword trees and then dotted flags override it."""
    tree: dict[str, Any] = {}
    if path is not None:
        merge(tree, _read_tree(Path(path), ()))
    merge(tree, flags_tree(flags, values))
    return build_config(tree)


def build_config(tree: Mapping[str, Any]) -> TrainConfig:
    """Validate a tree of settings; ConfigError lists everything that is wrong."""
    try:
        return TrainConfig.model_validate(dict(tree))
    except ValidationError as error:
        known = [field for field, *_ in fields()] + list(TrainConfig.model_fields)
        lines = [describe(issue, known) for issue in error.errors()]
        raise ConfigError("The settings have errors:\n" + "\n".join(f"  {line}" for line in lines)) from None


def dump_toml(config: TrainConfig) -> str:
    """The settings as TOML, each under its documentation; settings that are not set stay out."""
    lines = [*_toml_lines(config), ""]
    for name, section in config:
        if isinstance(section, Section):
            lines += [f"[{name}]", *_toml_lines(section), ""]
    return "\n".join(lines)


def _toml_lines(section: Section) -> Iterator[str]:
    """The plain settings of a section."""
    for name, value in section:
        if not isinstance(value, Section):
            yield f"# {_doc(type(section), name)}"
            yield f"# {name} =" if value is None else f"{name} = {_toml(value)}"


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):  # TOML has no null: what is not set stays out
        inside = (f"{_toml(str(key))} = {_toml(item)}" for key, item in value.items() if item is not None)
        return "{" + ", ".join(inside) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_toml(item) for item in value if item is not None) + "]"
    # Not escaped: JSON spells an emoji as two halves, which TOML refuses.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def fields() -> Iterator[tuple[str, str, Any, str]]:
    """Every setting: dotted name, type, default, documentation."""
    for name, outer in TrainConfig.model_fields.items():
        if isinstance(outer.default, Section):
            kind = type(outer.default)
            for inner, field in kind.model_fields.items():
                yield f"{name}.{inner}", _type_name(field.annotation), getattr(outer.default, inner), _doc(kind, inner)
        else:
            yield name, _type_name(outer.annotation), outer.default, _doc(TrainConfig, name)


def _doc(kind: type[BaseModel], field: str) -> str:
    return " ".join((kind.model_fields[field].description or "").split())


def _type_name(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation).replace("typing.", "")


def _read_tree(path: Path, seen: tuple[Path, ...]) -> dict[str, Any]:
    """A file's tree, on top of the files named by its `include`."""
    if path.resolve() in seen:
        chain = " → ".join(str(step) for step in (*seen, path.resolve()))
        raise ConfigError(f"Settings files include each other in a circle: {chain}. Remove one of the includes.")
    try:
        text = path.read_text("utf-8")
        tree: Any = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except FileNotFoundError:
        raise NotFoundError(f"There is no settings file {path}. Check the path.") from None
    except OSError as error:
        raise ConfigError(f"Cannot read the settings file {path}: {error.strerror}. Check the path.") from None
    except ValueError as error:
        raise ConfigError(f"{path} is not valid: {error}. Correct that line.") from None
    if not isinstance(tree, dict):
        raise ConfigError(f'{path} holds no table of settings. Give a file such as {{"limits": {{"steps": 20}}}}.')
    included = tree.pop("include", [])
    names = [included] if isinstance(included, str) else included
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ConfigError(f"{path}: `include` is {included!r}; give the name of a settings file, or a list of them.")
    merged: dict[str, Any] = {}
    for name in names:
        merge(merged, _read_tree(path.parent / name, (*seen, path.resolve())))
    merge(merged, tree)
    return merged


def flags_tree(flags: Sequence[str], values: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """`--optim.lr 5e-4`, `--optim.lr=5e-4`, `--checkpoint.keep_best` and `--no-checkpoint.keep_best` as a tree,
    on top of `values`."""
    tree: dict[str, Any] = {}
    merge(tree, values or {})
    words = list(flags)
    while words:
        word = words.pop(0)
        if not word.startswith("--"):
            raise ConfigError(f"Expected a setting like --optim.lr 5e-4, got {word!r}.")
        keys, value = _flag(word[2:], words)
        _put(tree, keys, value)
    for name, field in TrainConfig.model_fields.items():  # `check_changes` reads it before anything is validated
        if isinstance(field.default, Section) and not isinstance(tree.get(name, {}), Mapping):
            first = next(iter(type(field.default).model_fields))
            raise ConfigError(
                f"{name}: give a table of settings, not {tree[name]!r}, or one of them: --{name}.{first}."
            )
    return tree


def _flag(word: str, rest: list[str]) -> tuple[list[str], Any]:
    """The setting a flag names and its value, which may be the first of the words that follow and is then removed."""
    name, equals, text = word.partition("=")
    setting = name.removeprefix("no-")
    parts = setting.split(".")
    # Section and setting may be written with dashes; a key inside a setting is kept.
    keys = [part.replace("-", "_") for part in parts[:2]] + parts[2:]
    if name != setting:
        if equals:
            raise ConfigError(f"--{name} takes no value. Leave {equals + text!r} out, or write --{setting}={text}.")
        return keys, False
    if equals:
        return keys, _value(keys, text)
    if rest and not rest[0].startswith("--"):
        return keys, _value(keys, rest.pop(0))
    if (kind := _kind(keys)) not in ("bool", ""):  # a flag without a value is a switch
        raise ConfigError(f"--{'.'.join(keys)} needs a value: {kind}.")
    return keys, True


def _kind(keys: Sequence[str]) -> str:
    """The type of a setting; empty for any other name, such as a key inside a setting."""
    return next((kind for field, kind, *_ in fields() if field == ".".join(keys)), "")


def _put(tree: dict[str, Any], keys: list[str], value: Any) -> None:
    for key in keys[:-1]:
        inner = tree.setdefault(key, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"--{'.'.join(keys)}: {key!r} was already given a plain value. Give one of the two.")
        tree = inner
    tree[keys[-1]] = value


def _value(keys: Sequence[str], text: str) -> Any:
    if _kind(keys).startswith(("str", "Literal")):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return None if text in ("none", "None") else text
