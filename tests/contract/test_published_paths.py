"""Environments that published clients pickled: their module paths, and the packages that came along with them."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
import types
import zipfile
from contextlib import contextmanager

import cloudpickle
import pytest

from benchmax.bundle import (
    Bundle,
    BundleMetadata,
    BundlingError,
    DependencyError,
    ValidationError,
    check_compatible,
    compatibility,
    dump_bundle,
    envs_venv,
    with_implied_packages,
)
from benchmax.envs.base_env import BaseEnv
from benchmax.envs.remote import open_remote_env
from benchmax.envs.types import ToolCall
from benchmax.errors import BenchmaxError, McpError
from benchmax.models.scripted import ScriptedModel
from benchmax.published import GONE, HOMES
from benchmax.rollouts.host import EnvHost
from benchmax.rollouts.play import run_rollout

HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
NAMES = {
    "benchmax.rubrics.reward_fns": [
        "single_rubric_based_reward_function", "group_rubric_based_reward_function",
        "group_rubric_ranked_reward_function",
    ],
    "benchmax.rubrics.rubric": ["Rubric", "evaluate_single_rubric", "evaluate_rubric_ranking"],
    "benchmax.rubrics.adaptive": ["generate_instance_wise_adaptive_rubrics"],
    "benchmax.platform.credentials": [
        "resolve_judge_key", "resolve_token_provider", "as_token_provider", "env_token", "read_castform_session",
        "write_castform_session", "clear_castform_session", "platform_bearer",
    ],
    "benchmax.platform.device_auth": ["request_device_code", "poll_for_token", "DeviceAuthError"],
    "benchmax.platform.login": ["ensure_session"],
    "benchmax.envs.base": ["BaseEnv"],
    "benchmax.envs.math.math_env": ["MathEnv", "MathEnvLocal", "MathEnvSkypilot"],
    "benchmax.envs.mcp.parallel_mcp_env": ["ParallelMcpEnv"],
    "benchmax.envs.mcp.server_pool": ["ServerPool", "ServerAcquisitionError"],
    "benchmax.envs.mcp.luggage": ["Luggage", "_unpacked_later"],
    "benchmax.envs.mcp.provisioners.base_provisioner": ["BaseProvisioner"],
    "benchmax.envs.mcp.provisioners.local_provisioner": ["LocalProvisioner"],
    "benchmax.envs.mcp.provisioners.manual_provisioner": ["ManualProvisioner"],
    "benchmax.envs.mcp.provisioners.skypilot_provisioner": ["SkypilotProvisioner"],
    "benchmax.envs.crm.crm_env": ["CRMEnv", "CRMEnvLocal", "CRMEnvSkypilot"],
    "benchmax.envs.crm.base": ["CRMBase", "check_rows"],
    "benchmax.envs.excel.base": ["ExcelBase"],
    "benchmax.envs.wikipedia.wiki_env": ["WikipediaEnv"],
    "benchmax.envs.wikipedia.utils": [],
    "benchmax.envs.postgres_search": ["SearchEnv"],
    "benchmax.envs.postgres_search.search_env": ["SearchEnv"],
    "benchmax.envs.excel.excel_env": ["ExcelEnv", "ExcelEnvLocal", "ExcelEnvSkypilot"],
    "env_tracking": ["log_env"],
    "benchmax.utils": ["ensure_safe_python_version"],
    "benchmax.utils.checkpoint": ["CheckpointBase"],
    "benchmax.rubrics.cache": [
        "load_rubric_cache", "save_rubric_cache", "get_cache_for_question", "filter_and_cache_rubrics",
        "atomic_cache_update",
    ],
    "benchmax.rewards.diversity": ["ClusterResult", "DiversityConfig", "cluster_texts", "scale_by_diversity"],
}  # fmt: skip


@pytest.mark.parametrize("module", NAMES)
def test_published_paths_give_our_names(module):
    loaded = importlib.import_module(module)
    assert [name for name in NAMES[module] if not hasattr(loaded, name)] == []
    assert all(compatibility._has(module, name) for name in NAMES[module]), "what is served is not refused"
    with pytest.raises(AttributeError, match="has no attribute 'nothing_of_the_kind'"):
        loaded.nothing_of_the_kind  # noqa: B018


def test_every_row_of_the_table_leads_somewhere():
    assert set(HOMES) <= set(NAMES)
    for homes in HOMES.values():
        assert all(importlib.util.find_spec(home) for home in homes)


def test_work_goes_on_where_it_was_saved(tmp_path):
    from benchmax.utils.checkpoint import CheckpointBase

    saved = CheckpointBase(tmp_path / "deep" / "state.json")
    assert (saved.exists(), saved.load()) == (False, None)
    saved.save({"done": ["a"]})
    assert CheckpointBase(saved.path).load() == {"done": ["a"]}
    assert [path.name for path in saved.path.parent.iterdir()] == ["state.json"]
    saved.clear()
    saved.clear()
    assert not saved.exists()


@pytest.mark.parametrize("name", GONE)
def test_what_is_gone_says_what_to_use_instead(name):
    module, _, attribute = name.rpartition(".")
    for code in (f"import {name}", f"from {module} import {attribute}", f"from {name} import anything"):
        with pytest.raises(BenchmaxError, match=rf"^{re.escape(name)} is not in this benchmax\. .*\.$") as raised:
            exec(code, {})
        assert isinstance(raised.value, ImportError), "a script may try another name"
        assert raised.value.name == name


@pytest.mark.parametrize(
    "module", ["rag.chunkers.markdown", "rag.corpus.search_client", "traces.braintrust.adapter", "multi_model.caller"]
)
def test_what_is_in_a_package_that_is_gone_says_so_too(module):
    package = f"benchmax.{module.partition('.')[0]}"
    with pytest.raises(ImportError, match=rf"^{re.escape(package)} is not in this benchmax\. "):
        importlib.import_module(f"benchmax.{module}")


def test_what_to_use_instead_exists():
    """Every module that a sentence names can be found, and so can what it says of ParallelMcpEnv."""
    for advice in GONE.values():
        for found in re.findall(r"benchmax(?:\.\w+)+", advice):
            assert importlib.util.find_spec(found), found
    from benchmax.envs.mcp.parallel_mcp_env import ParallelMcpEnv

    from benchmax.adapters.env_session import EnvSession
    from benchmax.adapters.skyrl import entrypoint, text_env
    from benchmax.envs.excel.spreadsheetbench import load_rows
    from benchmax.envs.search import SearchEnv

    assert all(map(callable, (EnvSession, SearchEnv, load_rows, entrypoint.main, text_env.register)))
    named = {word for advice in GONE.values() if "ParallelMcpEnv" in advice for word in re.findall(r"\w+_\w+", advice)}
    assert {word for word in named if not hasattr(ParallelMcpEnv, word)} == {"allowed_tools"}


def test_a_name_that_is_gone_is_no_attribute():
    pool = importlib.import_module("benchmax.envs.mcp.server_pool")
    assert not hasattr(pool, "ServerInfo")
    with pytest.raises(AttributeError, match=r"ServerInfo is not in this benchmax\. ParallelMcpEnv leases servers"):
        pool.ServerInfo  # noqa: B018


@pytest.mark.parametrize("method", [
    "acquire_server", "get_server", "add_server_once_ready", "add_server_to_available_pool", "release_server",
    "report_server_failure", "shutdown",
])  # fmt: skip
def test_methods_of_the_published_pool_are_refused(method):
    from benchmax.envs.mcp.server_pool import ServerPool

    from benchmax.envs.mcp.provisioners import ManualProvisioner

    pool = ServerPool(ManualProvisioner(["127.0.0.1:9"]), "secret")
    with pytest.raises(AttributeError, match=rf"^ServerPool\.{method} is not in this benchmax\. .*shows every machine"):
        getattr(pool, method)


async def test_a_wait_for_servers_ends_in_the_published_error():
    from benchmax.envs.mcp.server_pool import ServerAcquisitionError, ServerPool

    from benchmax.envs.mcp.provisioners import ManualProvisioner

    pool = ServerPool(ManualProvisioner(["127.0.0.1:9"]), "secret")
    with pytest.raises(ServerAcquisitionError, match="No MCP server became free"):
        await pool.acquire("r", 0.01)
    assert ServerAcquisitionError is McpError


class Tracked(BaseEnv):
    """Logs as environments of the older style do."""

    async def run_tool(self, rollout_id, tool_name, **tool_args):
        from env_tracking import log_env

        log_env(rollout_id, "from a file")
        return "done"

    async def list_tools(self):
        return [{"name": "look", "description": "Looks."}]

    async def compute_reward(self, rollout_id, completion, ground_truth, **kwargs):
        self.log_env(rollout_id, f"scored {ground_truth}")
        return {"x": 1.0}


async def test_lines_of_the_older_style_are_stored_with_their_rollout():
    model = ScriptedModel([ToolCall("look", "{}"), "4"])
    async with EnvHost(Tracked) as host:
        row = {"prompt": "2+2?", "ground_truth": "4"}
        rollout = await run_rollout(host, Tracked.dataset_preprocess(row), model)
    assert rollout.rewards == {"x": 1.0}
    assert [line.message for line in rollout.logs] == ["from a file", "scored 4"]


def test_tracking_is_refused_unless_an_environment_has_its_own():
    class Own(Tracked):
        def enable_tracking(self, experiment_id, api_key):
            return experiment_id

    with pytest.raises(BenchmaxError, match=r"^Tracked\.enable_tracking is not in this benchmax\. Leave it out: log"):
        Tracked().enable_tracking("run", "key")
    assert not hasattr(Tracked(), "enable_tracking")
    assert Own().enable_tracking("run", "key") == "run"


def test_an_unknown_module_stays_unknown():
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'benchmax\.ragged'"):
        importlib.import_module("benchmax.ragged")


def published(env_class, *, source=None, dependencies=(), **arguments):
    """A bundle as those clients write it: four fields of metadata, and none of ours."""
    manifest = {"pip_dependencies": list(dependencies), "python_version": HERE, "benchmax_version": "0.1.2.dev34",
                "env_class_source": source}  # fmt: skip
    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)
    try:
        pickled = cloudpickle.dumps((env_class, arguments))
    finally:
        cloudpickle.unregister_pickle_by_value(module)
    return Bundle(pickled, BundleMetadata.from_json_bytes(json.dumps(manifest).encode()))


@contextmanager
def module_with(name, **names):
    """A module as the published package has it, while something is pickled."""
    made = types.ModuleType(name)
    for each, value in names.items():
        value.__module__ = name
        setattr(made, each, value)
    parents = [".".join(name.split(".")[:end]) for end in range(2, name.count(".") + 1)]
    added = [each for each in (*parents, name) if each not in sys.modules]
    for each in added:
        sys.modules[each] = made if each == name else types.ModuleType(each)
    try:
        yield made
    finally:
        for each in added:
            del sys.modules[each]


class Scored(BaseEnv):
    """Keeps what it is given, and says where it is from."""

    def __init__(self, function=None, **kwargs):
        self.function = function

    async def run_tool(self, rollout_id, tool_name, **kw):
        return f"{self.function.__module__}.{self.function.__name__}"

    async def compute_reward(self, rollout_id, messages, task, **kw):
        return {"x": 1.0}


async def test_an_environment_with_published_paths_opens_in_its_process(monkeypatch):
    from benchmax.rubrics.functions import single_rubric_based_reward_function as scorer

    importlib.import_module("benchmax.rubrics.reward_fns")
    monkeypatch.setattr(scorer, "__module__", "benchmax.rubrics.reward_fns")
    bundle = published(Scored, function=scorer)
    assert b"benchmax.rubrics.reward_fns" in bundle.pickled
    check_compatible(bundle.pickled, bundle.metadata)
    env = await open_remote_env(bundle)
    try:
        assert await env.run_tool("r", "t") == "benchmax.rubrics.functions.single_rubric_based_reward_function"
    finally:
        env.close()


def test_a_name_that_is_not_here_is_refused_by_it():
    class PostgresSearch:
        pass

    def apply_pivot_filter():
        pass

    for module, thing in (
        ("benchmax.rag.corpus.postgres", PostgresSearch),
        ("benchmax.traces.pivot", apply_pivot_filter),
    ):
        thing.__qualname__ = thing.__name__
        with module_with(module, **{thing.__name__: thing}):
            bundle = published(Scored, function=thing)
        with pytest.raises(
            ValidationError, match=rf"uses {module}\.{thing.__name__}, which this benchmax does not have\. Rows are not"
        ):
            check_compatible(bundle.pickled, bundle.metadata)


def test_a_bundle_that_needs_what_is_gone_is_told_what_to_use_instead():
    class LinkerEnv:
        pass

    LinkerEnv.__qualname__ = "LinkerEnv"
    with module_with("benchmax.envs.postgres_search.linker_env", LinkerEnv=LinkerEnv):
        bundle = published(Scored, function=LinkerEnv)
    with pytest.raises(
        ValidationError, match=r"uses .*LinkerEnv, which this benchmax does not have\. It belongs to .*"
    ):
        check_compatible(bundle.pickled, bundle.metadata)
    source = "class E:\n    def f(self):\n        from benchmax.adapters.benchmax_wrapper import BenchmaxEnv\n"
    bundle = published(Scored, source=source)
    with pytest.raises(ValidationError, match=r"uses benchmax\.adapters\.benchmax_wrapper, .* needs no Ray actor"):
        check_compatible(bundle.pickled, bundle.metadata)


def test_a_module_that_is_imported_only_when_it_runs_is_refused_too():
    class Late(Scored):
        async def compute_reward(self, rollout_id, messages, task, **kw):
            import benchmax.multi_model.pricing

            return {"x": benchmax.multi_model.pricing.get_pricing()}

    bundle = published(Late)
    with pytest.raises(ValidationError, match=r"uses benchmax\.multi_model\.pricing,"):
        check_compatible(bundle.pickled, bundle.metadata)
    source = "class Late:\n    def f(self):\n        from benchmax.traces.pipeline import TracesPipeline\n"
    bundle = published(Scored, source=source)
    with pytest.raises(ValidationError, match=r"uses benchmax\.traces\.pipeline,"):
        check_compatible(bundle.pickled, bundle.metadata)


def test_an_environment_of_the_later_style_is_refused_with_words():
    class Later(BaseEnv):
        async def compute_reward(self, rollout):
            return {}

    source = "    class Later(BaseEnv):\n        async def compute_reward(self, rollout):\n            return {}\n"
    for refused in (
        lambda: check_compatible(published(Later, source=source).pickled, published(Later, source=source).metadata),
        lambda: dump_bundle(Later),
    ):
        with pytest.raises(BundlingError, match=r"written for benchmax 0\.2\. Write it as compute_reward\(self, roll"):
            refused()


def test_a_module_nobody_declared_is_refused_and_a_declared_package_may_bring_any():
    def thing():
        pass

    thing.__qualname__ = "thing"
    with module_with("odd_module", thing=thing):
        bare, declared = published(Scored, function=thing), published(Scored, function=thing, dependencies=["odd"])
    with pytest.raises(DependencyError, match="needs the module odd_module, which is not installed here"):
        check_compatible(bare.pickled, bare.metadata)
    check_compatible(declared.pickled, declared.metadata)


def test_a_package_with_a_benchmax_of_its_own_is_refused_and_benchmax_itself_is_lent(tmp_path):
    bundle = published(Scored, dependencies=["castform>=0.2"])
    with pytest.raises(DependencyError, match="needs castform, which brings a benchmax of its own"):
        check_compatible(bundle.pickled, bundle.metadata)
    bundle = published(Scored, dependencies=["benchmax==0.1.2.dev34"])
    check_compatible(bundle.pickled, bundle.metadata)
    assert str(envs_venv(bundle.metadata, tmp_path)) == sys.executable


class Repairs(BaseEnv):
    async def compute_reward(self, rollout_id, messages, task, **kw):
        import json_repair

        return {"x": float(json_repair.VALUE)}


def wheel_of(folder, module, text):
    """A package with one module, as pip installs it."""
    name = f"{module}-0.1.dist-info"
    with zipfile.ZipFile(folder / f"{module}-0.1-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{module}.py", text)
        wheel.writestr(f"{name}/METADATA", f"Metadata-Version: 2.1\nName: {module.replace('_', '-')}\nVersion: 0.1\n")
        wheel.writestr(
            f"{name}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{name}/RECORD", "")


def test_packages_that_came_along_are_installed_for_published_bundles_alone(tmp_path, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        compatibility, "find_spec", lambda name: None if name in compatibility.IMPLIED_PACKAGES else find(name)
    )
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    wheel_of(tmp_path, "json_repair", "VALUE = 7\n")
    bundle = published(Repairs)
    metadata = with_implied_packages(bundle.pickled, bundle.metadata)
    assert metadata.pip_dependencies == ["json-repair"]
    python = envs_venv(metadata, tmp_path / "venvs")
    asked = [str(python), "-c", "import json_repair, benchmax; print(json_repair.VALUE)"]
    assert subprocess.run(asked, capture_output=True, text=True, check=True).stdout == "7\n"
    ours = dump_bundle(Repairs)
    assert with_implied_packages(ours.pickled, ours.metadata) is ours.metadata
    plain = published(Scored)
    assert with_implied_packages(plain.pickled, plain.metadata).pip_dependencies == []
