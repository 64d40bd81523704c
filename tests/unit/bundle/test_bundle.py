"""Packing an environment: what travels, what is refused, and in which words."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import threading

import cloudpickle
import pytest

from benchmax.bundle import (
    Bundle,
    BundleMetadata,
    BundlingError,
    DependencyError,
    IncompatibleBenchmaxError,
    IncompatiblePythonError,
    ValidationError,
    bundle_digest,
    bundle_env,
    dump_bundle,
    fingerprint,
    inspect_bundle,
    load_bundle,
    load_env,
    load_env_from_bundle,
    load_env_from_files,
    read_bundle_files,
    unregistered_local_refs,
    validate_bundle,
    validate_bundle_compatibility,
    write_bundle_files,
)
from benchmax.envs.base_env import BaseEnv
from benchmax.envs.types import ToolCall, ToolDefinition
from benchmax.errors import UsageError
from benchmax.rewards.diversity import DiversityConfig
from benchmax.rewards.rubric import Rubric

HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
FACTOR = 3


class Plain(BaseEnv):
    PIP_DEPENDENCIES = ["NumPy >=1.26", "my_package[b,a]"]

    def __init__(self, scale=1.0, **kwargs):
        self.scale = scale

    async def compute_reward(self, rollout_id, messages, task, **kw):
        return {"x": FACTOR * self.scale}


def opened(bundle, **options):
    return load_bundle(bundle, trust=True, **options)


async def test_a_class_of_a_local_file_travels_whole():
    bundle = dump_bundle(Plain, constructor_args={"scale": 2.0})
    assert bundle.metadata.local_modules == [__name__]
    assert unregistered_local_refs(bundle.pickled) == []
    assert cloudpickle.list_registry_pickle_by_value() == set()
    env = opened(bundle)
    assert await env.compute_reward("r", [], None) == {"x": 6.0}
    cls, args = opened(bundle, instantiate=False)
    assert (cls.__name__, args) == ("Plain", {"scale": 2.0})


def test_the_manifest():
    metadata = dump_bundle(Plain).metadata
    raw = json.loads(metadata.to_json_bytes())
    assert raw["pip_dependencies"] == ["my-package[a,b]", "numpy>=1.26"]
    assert raw["python_version"] == HERE
    assert raw["env_class"] == "Plain"
    assert raw["env_class_source"].startswith("class Plain(BaseEnv):")
    assert raw["sha256"] == metadata.sha256
    assert BundleMetadata.from_json_bytes(metadata.to_json_bytes()) == metadata


def test_a_manifest_of_an_older_client_is_read():
    old = {"pip_dependencies": ["x"], "python_version": HERE, "benchmax_version": "0.1.2.dev36"}
    metadata = BundleMetadata.from_json_bytes(json.dumps({**old, "env_class_source": None, "extra": 1}).encode())
    assert (metadata.pip_dependencies, metadata.sha256, metadata.env_class) == (["x"], None, None)
    assert opened(Bundle(dump_bundle(Plain).pickled, metadata)).scale == 1.0
    class_alone = Bundle(cloudpickle.dumps(Plain), metadata)  # older still: the class without arguments
    assert opened(class_alone).scale == 1.0


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b'{"python_version": 3}', b'{"python_version": "3.11", "sha256": 1}']
)
def test_a_damaged_manifest_is_refused_with_words(data):
    with pytest.raises(ValidationError, match=r"metadata .* again"):
        BundleMetadata.from_json_bytes(data)


def test_a_seed_environment_is_small():
    class Small(BaseEnv):
        system_prompt = "Answer."

        async def compute_reward(self, rollout_id, messages, task, **kw):
            return {"correct": float(messages[-1]["content"] == task["ground_truth"])}

    assert len(dump_bundle(Small).pickled) < 4096


def test_a_class_of_main_travels(tmp_path):
    script = """
        import sys
        from benchmax.bundle import dump_bundle, write_bundle_files
        from benchmax.envs.base_env import BaseEnv

        GREETING = "hello"

        class Env(BaseEnv):
            async def compute_reward(self, rollout_id, messages, task, **kw):
                return {GREETING: 1.0}

        write_bundle_files(dump_bundle(Env), "p", "m")
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True, cwd=tmp_path)
    env = load_env_from_files(tmp_path / "p", tmp_path / "m", trust=True, instantiate=True)
    assert type(env).__name__ == "Env"


PACKED = """
    import cloudpickle, sys
    from pathlib import Path
    from benchmax.bundle import dump_bundle
    from benchmax.envs.base_env import BaseEnv

    class Helper:
        "A second class that is packed by value."

    class Env(BaseEnv):
        async def compute_reward(self, rollout_id, messages, task, **kw):
            return {"x": float(Helper is not None and self.a - self.b in REWARDED)}

    plain = cloudpickle.dumps((Env, {}))
    for name, pickled in (("plain", plain), ("bundle", dump_bundle(Env).pickled)):
        Path(sys.argv[1], name).write_bytes(pickled)
"""


def packed_elsewhere(folder, *changes, seed=0):
    """What two clients make of an environment in a process of their own: cloudpickle's bytes, and ours."""
    script = textwrap.dedent(PACKED).replace("REWARDED", "(1.0, 2.0)")
    for old, new in changes:
        script = script.replace(old, new)
    folder.mkdir()
    env = {**os.environ, "PYTHONHASHSEED": str(seed)}
    subprocess.run([sys.executable, "-c", script, str(folder)], check=True, env=env)
    return (folder / "plain").read_bytes(), (folder / "bundle").read_bytes()


def test_the_same_environment_packs_into_the_same_bytes(tmp_path):
    (first_plain, first), (second_plain, second) = (packed_elsewhere(tmp_path / name) for name in "ab")
    assert first_plain != second_plain
    assert first == second
    assert packed_elsewhere(tmp_path / "c", ("1.0", "3.0"))[1] != first
    assert cloudpickle.loads(first)[0].__name__ == "Env"


def test_a_class_that_is_packed_and_opened_here_is_the_same_class():
    class Env(Plain): ...

    assert opened(dump_bundle(Env), instantiate=False)[0] is Env


def test_an_environment_is_recognised_whoever_packed_it(tmp_path):
    members = ("(1.0, 2.0)", '{"yes", "no", "maybe"}')
    one, two = (packed_elsewhere(tmp_path / f"{seed}", members, seed=seed)[0] for seed in (1, 2))
    assert one != two
    assert fingerprint(one) == fingerprint(two)
    for index, change in enumerate([("maybe", "never"), ("self.a - self.b", "self.b - self.a")]):
        assert fingerprint(packed_elsewhere(tmp_path / f"other{index}", members, change)[0]) != fingerprint(one)
    with pytest.raises(ValidationError, match="not a readable pickle"):
        fingerprint(b"no pickle")


async def test_chains_of_local_modules_travel(tmp_path, monkeypatch):
    (tmp_path / "chain_a.py").write_text("import chain_b\ndef one(): return chain_b.two() + 1\n")
    (tmp_path / "chain_b.py").write_text("from chain_c import THREE\ndef two(): return THREE.value + 1\n")
    (tmp_path / "chain_c.py").write_text("class Three:\n    value = 3\nTHREE = Three()\n")
    (tmp_path / "chain_env.py").write_text(
        "import chain_a\nfrom benchmax.envs.base_env import BaseEnv\n"
        "class Env(BaseEnv):\n"
        "    async def compute_reward(self, rollout_id, messages, task, **kw):\n"
        "        return {'x': float(chain_a.one())}\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    import chain_env

    bundle = dump_bundle(chain_env.Env)
    assert bundle.metadata.local_modules == ["chain_a", "chain_b", "chain_c", "chain_env"]
    with pytest.raises(BundlingError, match="cannot be packed: chain_env"):
        dump_bundle(chain_env.Env, auto_local_modules=False)
    write_bundle_files(bundle, tmp_path / "p", tmp_path / "m")
    script = (
        "import asyncio, sys; from benchmax.bundle import load_env_from_files as load\n"
        f"env = load({str(tmp_path / 'p')!r}, {str(tmp_path / 'm')!r}, trust=True, instantiate=True)\n"
        "print(asyncio.run(env.compute_reward('r', [], None)), 'chain_a' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd="/")
    assert done.stdout.split() == ["{'x':", "5.0}", "False"]


def test_local_modules_imported_inside_functions_are_refused(tmp_path, monkeypatch):
    (tmp_path / "late_helper.py").write_text("x = 1\n")
    (tmp_path / "late_env.py").write_text(
        "from benchmax.envs.base_env import BaseEnv\n"
        "class Env(BaseEnv):\n"
        "    async def compute_reward(self, rollout_id, messages, task, **kw):\n"
        "        import json, late_helper, not_installed_here\n"
        "        return {'x': late_helper.x}\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    import late_env

    with pytest.raises(BundlingError, match=r"inside a function.*: late_helper\. Import it at the top"):
        dump_bundle(late_env.Env)


class Unfinished(BaseEnv):
    pass


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (int, "int is not an environment"),
        (BaseEnv, "BaseEnv is not an environment"),
        (Plain(), "Plain is not a class"),
        (Unfinished, "Unfinished does not implement compute_reward"),
    ],
)
def test_what_is_not_an_environment_is_refused(given, words):
    with pytest.raises(ValidationError, match=words):
        dump_bundle(given)


def test_what_cannot_be_packed_is_named():
    with pytest.raises(BundlingError, match=r"argument 'lock' \(lock\) cannot be packed"):
        dump_bundle(Plain, constructor_args={"scale": 1, "lock": threading.Lock()})

    class Locked(Plain):
        guard = threading.Lock()

    with pytest.raises(BundlingError, match=r"Locked\.guard cannot be packed.*__init__"):
        dump_bundle(Locked)
    with pytest.raises(BundlingError, match="'nothing_here' is not loaded"):
        dump_bundle(Plain, local_modules=["nothing_here"])
    assert cloudpickle.list_registry_pickle_by_value() == set()


@pytest.mark.parametrize("wrong", ["-r file.txt", "--index-url=x", "numpy>>2", ""])
def test_wrong_dependencies_are_named(wrong):
    with pytest.raises(DependencyError, match="Not a package requirement"):
        dump_bundle(Plain, pip_dependencies=["fine", wrong])


def test_other_versions_are_refused_with_words():
    bundle = dump_bundle(Plain)
    fields = json.loads(bundle.metadata.to_json_bytes())

    def changed(**change):
        return Bundle(bundle.pickled, BundleMetadata(**{**fields, **change}))

    with pytest.raises(IncompatiblePythonError, match=r"made with Python 3\.8 .*this is Python"):
        opened(changed(python_version="3.8"))
    with pytest.raises(IncompatibleBenchmaxError, match="Upgrade benchmax"):
        opened(changed(format_version=99))
    with pytest.raises(IncompatibleBenchmaxError, match=r"made with benchmax 9\.1"):
        validate_bundle_compatibility(changed(benchmax_version="9.1").metadata)
    assert isinstance(IncompatiblePythonError("x"), UsageError)
    assert opened(changed(python_version=f"{HERE}.4")).scale == 1.0


def test_a_missing_package_is_named():
    pickled = dump_bundle(Plain).pickled.replace(b"benchmax.envs.base_env", b"benchmay.envs.base_env")
    with pytest.raises(BundlingError, match="needs the module 'benchmay'"):
        opened(Bundle(pickled, BundleMetadata()))


def test_the_older_names(tmp_path):
    bundle = bundle_env(Plain, ["numpy"], constructor_args={"scale": 4.0})
    write_bundle_files(bundle, tmp_path / "p", tmp_path / "m")
    again = read_bundle_files(tmp_path / "p", tmp_path / "m")
    assert again == bundle
    assert again.pickled_class == again.pickled
    assert load_env_from_bundle(again, trust=True).scale == 4.0
    assert load_env_from_bundle(again, trust=True, constructor_args={"scale": 5.0}).scale == 5.0
    assert isinstance(load_env_from_bundle(bundle_env(Plain), trust=True), type)


def test_a_pickle_is_opened_by_its_older_name():
    bundle = bundle_env(Plain, constructor_args={"scale": 4.0})
    assert load_env(bundle.pickled, bundle.metadata, trust=True).scale == 4.0
    assert load_env(bundle.pickled, constructor_args={"scale": 5.0}, trust=True).scale == 5.0
    assert isinstance(load_env(bundle.pickled, trust=True, instantiate=False), type)
    with pytest.raises(BundlingError, match="did not allow it"):
        load_env(bundle.pickled, bundle.metadata)
    with pytest.raises(IncompatiblePythonError, match=r"made with Python 3\.9"):
        load_env(bundle.pickled, bundle.metadata, python_version="3.9", trust=True)
    assert load_env(bundle.pickled, python_version="3.9", check_python_version=False, trust=True).scale == 4.0
    with pytest.raises(IncompatibleBenchmaxError, match=r"made with benchmax 9\.1"):
        load_env(bundle.pickled, benchmax_version="9.1", check_benchmax_version=True, trust=True)
    with pytest.raises(BundlingError, match=r"installs nothing into this Python\. Install its packages yourself"):
        load_env(bundle.pickled, pip_dependencies=["numpy"], install_pip_deps=True, trust=True)


class Listed(BaseEnv):
    def __init__(self, tools=(), **kwargs):
        self.tools = tools

    async def list_tools(self):
        return [ToolDefinition(name, "Looks.") for name in self.tools]

    async def compute_reward(self, rollout_id, messages, task, **kw):
        return {"x": 1.0}


class Broken(Listed):
    def __init__(self, **kwargs):
        raise RuntimeError("no disk")


def test_a_bundle_is_tried_in_a_process_of_its_own():
    assert validate_bundle(dump_bundle(Listed, constructor_args={"tools": ["look"]})) is None
    with pytest.raises(ValidationError, match=r"does not work: .*no disk.*\. Correct it, and pack it again\.$"):
        validate_bundle(dump_bundle(Broken))
    with pytest.raises(ValidationError, match=r"Two tools are named 'look'"):
        validate_bundle(dump_bundle(Listed, constructor_args={"tools": ["look", "look"]}))
    with pytest.raises(BundlingError, match="Give them to dump_bundle instead"):
        validate_bundle(dump_bundle(Listed), {"tools": []})


def test_a_report_says_what_the_pickle_imports():
    class Shell(BaseEnv):
        opener = staticmethod(subprocess.run)
        decoder = json

        async def compute_reward(self, rollout_id, messages, task, **kw):
            return {}

    bundle = dump_bundle(Shell, pip_dependencies=["requests"])
    report = inspect_bundle(bundle.pickled, bundle.metadata)
    assert report.ok
    assert report.digest_ok
    assert report.incompatible is None
    assert report.size == len(bundle.pickled)
    assert report.env_class == "Shell"
    assert "class Shell" in report.source
    assert report.pip_dependencies == ["requests"]
    assert "subprocess.run" in report.suspicious
    assert {"json", "subprocess", "benchmax.envs.base_env"} <= set(report.modules)


def test_a_report_lists_every_reason_for_refusal():
    bundle = dump_bundle(Plain)
    metadata = BundleMetadata(pip_dependencies=["a b c"], python_version="3.9", sha256="0" * 64)
    report = inspect_bundle(bundle.pickled[:-20], metadata)
    assert not report.ok
    assert report.digest_ok is False
    assert report.bad_dependencies == ["a b c"]
    words = "\n".join(report.problems)
    assert all(each in words for each in ("not a readable pickle", "sha256 differs", "'a b c'"))
    assert "made with Python 3.9" in report.incompatible
    assert report.sha256 == bundle_digest(bundle.pickled[:-20])


class Pickled:
    """Pickles itself as the published package's instance of a class: its name, and a dict of its attributes."""

    def __init__(self, cls, **attributes):
        self.cls, self.state = cls, attributes

    def __reduce__(self):
        return object.__new__, (self.cls,), self.state


class Slotted(Pickled):
    """The same as earlier versions here: frozen classes had slots, whose values are a list."""

    def __init__(self, cls, **attributes):
        self.cls, self.state = cls, [getattr(cls(**attributes), name) for name in cls.__match_args__]


@pytest.mark.parametrize(
    ("cls", "attributes"),
    [
        (ToolDefinition, {"name": "add", "description": "Adds.", "input_schema": {"type": "object"}}),
        (ToolCall, {"name": "add", "arguments": "{}", "id": "1"}),
        (Rubric, {"title": "Brief", "description": "One line.", "type": "positive", "score_map": None}),
        (DiversityConfig, {"method": "ngram", "ngram_n": 5, "similarity_threshold": 0.4, "fallback_on_error": True}),
    ],
)
def test_objects_of_published_clients_keep_their_attributes(cls, attributes):
    published = cloudpickle.dumps((Plain, {"given": Pickled(cls, **attributes)}))
    _, arguments = opened(Bundle(published, BundleMetadata()), instantiate=False)
    assert arguments == {"given": cls(**attributes)}


@pytest.mark.parametrize(
    ("cls", "attributes"), [(ToolCall, {"name": "add", "id": "1"}), (DiversityConfig, {"ngram_n": 5})]
)
def test_objects_of_earlier_versions_keep_theirs(cls, attributes):
    packed = cloudpickle.dumps((Plain, {"given": Slotted(cls, **attributes)}))
    _, arguments = opened(Bundle(packed, BundleMetadata()), instantiate=False)
    assert arguments == {"given": cls(**attributes)}


def test_a_class_alone_gets_the_arguments_of_its_manifest():
    manifest = {"python_version": BundleMetadata().python_version, "constructor_args": {"scale": 3.0}}
    bundle = Bundle(cloudpickle.dumps(Plain), BundleMetadata.from_json_bytes(json.dumps(manifest).encode()))
    assert opened(bundle).scale == 3.0
    with pytest.raises(ValidationError, match="constructor_args"):
        BundleMetadata.from_json_bytes(json.dumps({**manifest, "constructor_args": [3]}).encode())
