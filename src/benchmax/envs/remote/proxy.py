"""`RemoteEnv`: an environment in child processes, with the hooks and attributes of the one it stands for."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from benchmax import limits
from benchmax.envs.base_env import BaseEnv
from benchmax.envs.composed.parts import is_composed, split_parts, with_full_paths
from benchmax.envs.datasets.load import LENIENT, DatasetReport, ExampleSet
from benchmax.envs.datasets.readers import Source, named_rows, source_name
from benchmax.envs.demonstration import remote_script
from benchmax.envs.loading import find_rows, means_own_rows
from benchmax.envs.remote.preprocess import preprocess
from benchmax.envs.remote.process import Output, ProcessSpec
from benchmax.envs.remote.process_limits import Confinement, ProcessLimits, code_paths
from benchmax.envs.remote.process_pool import EnvPool
from benchmax.envs.remote.routing import deciding_hook, routing_key
from benchmax.envs.types import Example, Messages, RewardValue, ToolCall, ToolDefinition
from benchmax.errors import ConfigError, EnvDefinitionError
from benchmax.files.temp_dirs import make_owned_dir, remove_tree
from benchmax.search.open_corpus import public_dir

logger = logging.getLogger(__name__)

ATTRIBUTES = (
    "system_prompt",
    "recommended_max_turns",
    "recommended_max_tool_calls",
    "reward_weights",
    "PRIMARY_REWARD_KEY",
    "composed_of",
)
"""Read once, when the environment starts."""
PLAIN_HOOKS = ("dataset_preprocess", "playground_preprocess", "gold_completion", "gold_tool_calls")
"""Class methods that are not coroutines; their callers block."""


class BundleLike(Protocol):
    """A `benchmax.bundle.Bundle`, which is on a layer above this one."""

    @property
    def pickled(self) -> bytes: ...

    @property
    def metadata(self) -> Any: ...


class RemoteEnv(BaseEnv):
    """Runs a bundle, or an environment named as on the command line, in child processes.

    Making one starts the processes and waits for the first; on an event loop, use `await open_remote_env(…)`.
    Its class is created for the environment: it has its name and exactly the hooks that are overridden there.
    """

    _pool: EnvPool

    def __init__(
        self,
        source: BundleLike | str,
        *,
        constructor_args: Mapping[str, Any] | None = None,
        processes: int = 1,
        python: str | Path | None = None,
        variables: Mapping[str, str] | None = None,
        process_limits: ProcessLimits = ProcessLimits(),
        start_seconds: float = limits.INIT_SECONDS,
        cancel_seconds: float = 5.0,
        output: Output | None = None,
        sandbox: Confinement | None = None,
        wait: bool = True,
    ) -> None:
        if processes < 1:
            raise ConfigError(f"processes is {processes}; it must be at least 1.")
        if constructor_args is not None and not isinstance(source, str):
            raise ConfigError("A bundle brings its constructor_args with it. Give them to dump_bundle instead.")
        python = str(python or sys.executable)
        corpora = {"BENCHMAX_CORPORA": str(public_dir())} if public_dir().is_dir() else {}
        read = (*code_paths(python), *_own_code(source), *corpora.values()) if sandbox is not None else ()
        workdir = make_owned_dir("benchmax-env-")
        self._confined = sandbox is not None
        spec = ProcessSpec(
            source=_source_in(workdir, source, constructor_args),
            python=python,
            workdir=_folder(workdir / "processes", 0o711),
            read=(*read, str(workdir / "bundle")),
            confinement=_wanted(source, sandbox),
            variables={**corpora, **(variables or {})},
            limits=process_limits,
            start_seconds=start_seconds,
            cancel_seconds=cancel_seconds,
            output=output or _log_line,
        )
        self._pool = EnvPool(spec, processes)
        self._cleanup = weakref.finalize(self, _clean_up, self._pool, workdir)
        if wait:
            self._describe(self._pool.open())

    def _describe(self, hello: Mapping[str, Any]) -> None:
        """Become a proxy of the environment that a process says it has."""
        try:
            self._deciding = deciding_hook(hello["overrides"])
            self.__class__ = _proxy_class(type(self), hello, self._pool)
        except (KeyError, TypeError, ValueError) as error:
            self.close()
            if isinstance(error, EnvDefinitionError):
                raise
            raise EnvDefinitionError(
                f"The environment's process described itself wrongly ({error!r}). Use the same benchmax on both sides."
            ) from None

    async def _call(
        self, hook: str, rollouts: Sequence[str], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        key = routing_key(hook, kwargs, self._deciding)
        return await self._pool.call(hook, tuple(rollouts), key, args, kwargs)

    async def compute_reward(
        self, rollout_id: str, messages: Messages, task: dict[str, Any] | None, **kwargs: Any
    ) -> Mapping[str, RewardValue]:
        given = {**kwargs, "messages": messages, "task": task}
        return await self._call("compute_reward", [rollout_id], (rollout_id,), given)  # type: ignore[no-any-return]

    async def preprocess(
        self,
        source: Source,
        *,
        lenient: bool = False,
        min_rows: int = 0,
        name: str | None = None,
        advice: str = LENIENT,
    ) -> ExampleSet:
        """All examples of `source`, made by the environment's `dataset_preprocess` in its process.

        `name` is the source's name in messages, `advice` says what to do about unusable rows.
        """
        report = DatasetReport(name or source_name(source), lenient, min_rows, advice=advice)
        return await preprocess(lambda rows: self._call("preprocess", (), (rows,)), named_rows(source, name), report)

    async def find_rows(self, data: str | None) -> Any:
        """The rows a person means by `data`; those of the environment's own `load_dataset` are made in its process."""
        if not means_own_rows(type(self), data):
            return find_rows(type(self), data)
        return await self._call("own_rows", (), (data or None,))

    async def shutdown(self) -> None:
        """Shut the environment down in every process, and end them."""
        await asyncio.to_thread(self.close)

    def close(self, **how: float) -> None:
        self._pool.close(**how)
        self._cleanup()

    @contextlib.contextmanager
    def given_up_when_interrupted(self) -> Iterator[None]:
        """Ctrl-C ends the processes at once, before anything was begun in them: they may be stuck."""
        try:
            yield
        except (KeyboardInterrupt, asyncio.CancelledError):
            self.close(grace=0.0)
            raise


async def open_remote_env(source: BundleLike | str, **options: Any) -> RemoteEnv:
    """`RemoteEnv(source, …)`, without blocking the event loop while the processes start."""
    env = await asyncio.to_thread(lambda: RemoteEnv(source, **options, wait=False))
    with env.given_up_when_interrupted():
        env._describe(await asyncio.to_thread(env._pool.open))
    return env


class _Hooks(RemoteEnv):
    """All hooks; a proxy class gets those that its environment overrides."""

    async def list_tools(self) -> list[ToolDefinition]:
        return await self._call("list_tools", ())  # type: ignore[no-any-return]

    async def list_part_tools(self, part: str) -> list[ToolDefinition]:
        return await self._call("list_part_tools", (), (part,))  # type: ignore[no-any-return]

    async def run_tool(self, rollout_id: str, tool_name: str, **tool_args: Any) -> Any:
        return await self._call("run_tool", [rollout_id], (rollout_id, tool_name), tool_args)

    async def compute_group_reward(
        self,
        rollout_ids: list[str],
        messages_list: list[Messages],
        tasks: list[dict[str, Any] | None],
        **kwargs: Any,
    ) -> Sequence[Mapping[str, RewardValue]]:
        given = {**kwargs, "messages_list": messages_list, "tasks": tasks}
        return await self._call("compute_group_reward", rollout_ids, (rollout_ids,), given)  # type: ignore[no-any-return]

    async def validate_probe(self, eval_dataset: Sequence[Any]) -> dict[str, Any] | None:
        return await self._call("validate_probe", (), (list(eval_dataset),))  # type: ignore[no-any-return]

    def demonstrate(self, example: Example) -> Any:
        return remote_script(lambda *asked: self._call("demonstrate", (), asked), example)

    async def get_system_prompt(self, add_tool_defs: bool = False) -> str:
        return await self._call("get_system_prompt", (), (add_tool_defs,))  # type: ignore[no-any-return]

    async def init_rollout(self, rollout_id: str, **rollout_args: Any) -> None:
        await self._call("init_rollout", [rollout_id], (rollout_id,), rollout_args)

    async def release_rollout(self, rollout_id: str) -> None:
        await self._call("release_rollout", [rollout_id], (rollout_id,))

    async def copy_to_workspace(self, rollout_id: str, src_path: Path, dst_filename: str | None = None) -> None:
        if self._confined:  # it cannot read the file itself
            content = await asyncio.to_thread(Path(src_path).read_bytes)
            await self._call("copy_in", [rollout_id], (rollout_id, content, Path(src_path).name, dst_filename))
            return
        given = (rollout_id, _absolute(src_path), dst_filename)
        await self._call("copy_to_workspace", [rollout_id], given)

    async def copy_content_to_workspace(self, rollout_id: str, src_content: str | bytes, dst_filename: str) -> None:
        await self._call("copy_content_to_workspace", [rollout_id], (rollout_id, src_content, dst_filename))

    async def copy_from_workspace(self, rollout_id: str, src_filename: str, dst_path: Path) -> None:
        if self._confined:
            content = await self._call("copy_out", [rollout_id], (rollout_id, src_filename))
            await asyncio.to_thread(Path(dst_path).write_bytes, content)
            return
        given = (rollout_id, src_filename, _absolute(dst_path))
        await self._call("copy_from_workspace", [rollout_id], given)


def _absolute(path: Path) -> Path:
    """The child has another working directory."""
    return Path(path).absolute()


async def _old_reward(self: RemoteEnv, rollout_id: str, completion: Any, ground_truth: Any, **kwargs: Any) -> Any:
    given = {**kwargs, "completion": completion, "ground_truth": ground_truth}
    return await self._call("compute_reward", [rollout_id], (rollout_id,), given)


async def _old_group_reward(
    self: RemoteEnv, rollout_ids: list[str], completions: Any, ground_truths: Any, **kwargs: Any
) -> Any:
    given = {**kwargs, "completions": completions, "ground_truths": ground_truths}
    return await self._call("compute_group_reward", rollout_ids, (rollout_ids,), given)


def _proxy_class(base: type[RemoteEnv], hello: Mapping[str, Any], pool: EnvPool) -> type[RemoteEnv]:
    """A class with the name, the attributes and exactly the hooks of the environment that `hello` describes."""
    members: dict[str, Any] = {name: hello["attributes"][name] for name in ATTRIBUTES}
    members |= {"__doc__": hello["doc"], "__module__": base.__module__}
    for hook in hello["overrides"]:
        if hook == "estimate_rollout_tokens":
            members[hook] = lambda self, tokens=hello["tokens"]: tokens
        elif hook in PLAIN_HOOKS:
            members[hook] = staticmethod(_plain_hook(pool, hook))
        elif hook in vars(_Hooks):
            members[hook] = vars(_Hooks)[hook]
    if "compute_reward" in hello["old_style"]:
        members["compute_reward"] = _old_reward
    if "compute_group_reward" in hello["old_style"]:
        members["compute_group_reward"] = _old_group_reward
    return type(str(hello["name"]), (base,), members)


def _plain_hook(pool: EnvPool, hook: str) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        result = pool.call_blocking(hook, args, kwargs, limits.INIT_SECONDS)
        return [ToolCall.from_dict(call) for call in result] if hook == "gold_tool_calls" else result

    return call


def _clean_up(pool: EnvPool, workdir: Path) -> None:
    """End what is left of an environment that was closed, or garbage-collected without being closed."""
    pool.kill()
    remove_tree(workdir)


def _source_in(workdir: Path, source: BundleLike | str, arguments: Mapping[str, Any] | None) -> dict[str, Any]:
    """What the children open, as JSON; a bundle is written to the working directory."""
    if isinstance(source, str):
        return {"spec": with_full_paths(source), "args": dict(arguments or {}), "path": str(Path.cwd())}
    folder = _folder(workdir / "bundle", 0o755)
    for name, content in (
        ("env-cls.pkl", source.pickled),
        ("env-metadata.json", source.metadata.to_json_bytes()),
    ):
        (folder / name).write_bytes(content)
        (folder / name).chmod(0o644)  # for the user of a sandbox; to others `workdir` is closed
    return {"bundle": str(folder)}


def _folder(path: Path, mode: int) -> Path:
    path.mkdir()
    path.chmod(mode)  # whatever the umask
    return path


def _own_code(source: BundleLike | str) -> tuple[str, ...]:
    """Where the code of an environment lies that is no bundle."""
    if not isinstance(source, str):
        return ()
    home = Path.home()
    parts = split_parts(source) if is_composed(source) else [source]
    files = [file for part in parts if (file := part.partition(":")[0]).endswith(".py")]
    folders = [Path(file).absolute().parent for file in files]
    for file, folder in zip(files, folders, strict=True):
        if home.is_relative_to(folder):
            raise ConfigError(f"In its sandbox {file} would read all of {home}. Put it into a folder of its own.")
    if not home.is_relative_to(Path.cwd()):
        folders.append(Path.cwd())
    return tuple(map(str, folders))


def _wanted(source: BundleLike | str, sandbox: Confinement | None) -> Confinement | None:
    """An environment may ask for less than it is given."""
    if sandbox is not None and not isinstance(source, str) and source.metadata.network == "none":
        return replace(sandbox, network="none")
    return sandbox


def _log_line(stream: str, line: str) -> None:
    logger.info("%s: %s", stream, line)
