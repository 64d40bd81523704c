from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from tiny_gguf import TOKENS, gguf_name, hf_weights, write_gguf
from typer.testing import CliRunner

from benchmax.cli.local.models import app
from benchmax.errors import NotFoundError, UsageError
from benchmax.inference.engine.engine import Engine
from benchmax.inference.tokens.chat import ChatTokens
from benchmax.inference.weights import store
from benchmax.inference.weights.download import Wheel
from benchmax.inference.weights.gguf import convert
from benchmax.inference.weights.llama import SUPPORTED, ModelSpec
from benchmax.platform.runner.children.train_child import loading_text
from benchmax.trainer.open_checkpoint import find_run, pin_checkpoint

SIZES = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "max_position_embeddings",
)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("BENCHMAX_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return write_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf")


@pytest.fixture
def index(tmp_path, monkeypatch, tiny):
    """A package index with one wheel that holds the tiny model, and the model's entry in the store."""
    folder = tmp_path / "index"
    folder.mkdir()
    info = "tiny_model-1.0.dist-info"
    with zipfile.ZipFile(folder / "tiny_model-1.0-py3-none-any.whl", "w") as wheel:
        wheel.write(tiny, "tiny_model/tiny.gguf")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    _know(monkeypatch, tiny)
    return folder


def _know(monkeypatch, tiny, **changes):
    checksum = hashlib.sha256(tiny.read_bytes()).hexdigest()
    facts = {"requirement": "tiny-model==1.0", "sha256": checksum} | changes
    wheel = Wheel(member="tiny.gguf", bytes=tiny.stat().st_size, download_bytes=1, **facts)
    known = store.KnownModel("tiny", "Tiny", "MIT", wheel, disk_bytes=1000)
    monkeypatch.setattr(store, "KNOWN", {"tiny": known})


def _leftovers(home):
    """Everything in the store but lock files."""
    return sorted(path.name for path in (home / "models").glob("*") if path.suffix != ".lock")


def test_conversion_gives_back_the_weights_bit_for_bit(tiny):
    stored = load_file(store.resolve(tiny) / "model.safetensors")
    expected = hf_weights()
    assert stored.keys() == expected.keys()
    for name, weight in expected.items():
        assert stored[name].dtype == np.float32
        assert np.array_equal(stored[name], weight), name


def test_a_converted_model_loads_with_plain_transformers(tiny):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    directory = store.resolve(tiny)
    model = AutoModelForCausalLM.from_pretrained(directory, local_files_only=True)
    tokenizer = AutoTokenizer.from_pretrained(directory, local_files_only=True)
    assert model.config.rope_parameters["rope_theta"] == 100_000.0
    assert model.config.rms_norm_eps == 1e-5
    assert model.config.tie_word_embeddings
    assert model.get_input_embeddings().weight.shape[0] == len(TOKENS)
    assert tokenizer.eos_token == tokenizer.pad_token == "<|im_end|>"
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id == 2
    assert tokenizer.tokenize("12 + 345") == ["1", "2", "Ġ", "+", "Ġ", "3", "4", "5"]
    assert tokenizer.tokenize("hell") == ["hell"]
    text = "héllo 👩‍👧 12 <|im_start|>\n\t x"
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_the_card_tells_source_licence_and_sizes(tiny):
    directory = store.resolve(tiny)
    card = json.loads((directory / "benchmax.json").read_text())
    assert card["license"] == "mit"
    assert card["source"] == str(tiny)
    assert card["sha256"] == hashlib.sha256(tiny.read_bytes()).hexdigest()
    assert card["parameters"] == sum(weight.size for weight in hf_weights().values())
    assert card["bytes"] > card["parameters"] * 4
    assert [model.path for model in store.list_models()] == [directory]


def test_a_quantised_file_is_told_of_wherever_its_weights_are_named(tmp_path):
    file = write_gguf(tmp_path / "small.gguf", quantised=True)
    directory = store.resolve(file)
    card = json.loads((directory / "benchmax.json").read_text())
    assert (card["file"], card["quantisation"]) == ("small.gguf", "Q4_1")
    weights, whole = load_file(directory / "model.safetensors"), hf_weights()
    assert weights.keys() == whole.keys()
    assert not np.array_equal(weights["model.layers.0.mlp.up_proj.weight"], whole["model.layers.0.mlp.up_proj.weight"])
    store.add("copy", directory)
    listed = json.loads(CliRunner().invoke(app, ["list", "--json"]).stdout)
    assert [model["quantisation"] for model in listed] == ["Q4_1", "Q4_1"]
    pulled, shown = (CliRunner().invoke(app, command).stdout for command in (["pull", "copy"], ["list"]))
    assert "mit, dequantised from Q4_1)" in pulled
    assert "dequantised from Q4_1" in " ".join(shown.split())


def test_whole_weights_are_not_called_quantised(tiny):
    assert store.read_card(store.resolve(tiny)).quantisation == ""


def test_a_known_models_older_card_tells_of_its_file(home):
    folder = home / "models" / "smollm2-135m"
    folder.mkdir(parents=True)
    older = {"name": folder.name, "title": "", "source": "x", "license": "", "sha256": "", "parameters": 1, "bytes": 1}
    (folder / "benchmax.json").write_text(json.dumps(older))
    card = store.read_card(folder)
    assert (card.file, card.quantisation) == ("SmolLM2-135M-Instruct.Q4_1.gguf", "Q4_1")


def test_a_directory_is_used_as_it_is(tiny):
    directory = store.resolve(tiny)
    assert store.resolve(str(directory)) == directory
    with pytest.raises(UsageError, match=r"no config\.json"):
        store.resolve(directory.parent)
    (directory / "model.safetensors").unlink()
    with pytest.raises(UsageError, match=r"no \.safetensors"):
        store.resolve(directory)


@pytest.mark.parametrize("part", [0.0, 0.001, 0.02, 0.5, 0.999])
def test_a_truncated_gguf_is_one_clear_line_and_leaves_nothing(tiny, tmp_path, home, part):
    broken = tmp_path / "broken.gguf"
    whole = tiny.read_bytes()
    broken.write_bytes(whole[: int(len(whole) * part)])
    with pytest.raises(UsageError, match=r"GGUF file") as caught:
        store.resolve(broken)
    assert "\n" not in str(caught.value)
    assert _leftovers(home) == []


def test_damage_anywhere_is_a_clear_line(tiny, tmp_path):
    """A wrong byte in the head may name other lengths and types; none may hang or escape as another error."""
    whole, rng = tiny.read_bytes(), random.Random(1)
    refused: list[str] = []
    for attempt in range(60):
        damaged = bytearray(whole)
        damaged[rng.randrange(4, 9_000)] = rng.randrange(256)
        path = tmp_path / "damaged.gguf"
        path.write_bytes(damaged)
        target = tmp_path / str(attempt)
        target.mkdir()
        try:
            convert(path, target)
        except UsageError as error:
            refused.append(str(error))
    assert len(refused) > 10
    assert not any("\n" in line for line in refused)


def test_unknown_kinds_of_gguf_are_refused(tmp_path):
    with pytest.raises(UsageError, match="'bert' model"):
        store.resolve(write_gguf(tmp_path / "bert.gguf", architecture="bert"))
    with pytest.raises(UsageError, match="scales its positions"):
        store.resolve(write_gguf(tmp_path / "yarn.gguf", extra={"llama.rope.scaling.type": "yarn"}))


@pytest.mark.parametrize("lacking", [gguf_name(name) for name in hf_weights()])
def test_a_gguf_that_lacks_a_tensor_is_not_stored(tmp_path, home, lacking):
    file = write_gguf(tmp_path / "part.gguf", without=[lacking])
    with pytest.raises(
        UsageError, match=rf"not a whole GGUF file \(it lacks the tensor {lacking}\)\. Download it again"
    ):
        store.resolve(file)
    assert _leftovers(home) == []


@pytest.mark.parametrize(
    ("layers", "told"),
    [
        (1, "holds the tensor 'blk.1.attn_k.weight', unknown to a Llama model of the sizes that it names. Use a"),
        (2**31, "is not a whole GGUF file (it lacks the tensor blk.2."),
    ],
)
def test_a_gguf_that_miscounts_its_layers_is_not_stored(tmp_path, home, layers, told):
    with pytest.raises(UsageError, match=re.escape(told)):
        store.resolve(write_gguf(tmp_path / "odd.gguf", layers=layers))
    assert _leftovers(home) == []


def test_a_gguf_whose_tensors_have_other_sizes_is_not_stored(tmp_path, home):
    file = write_gguf(tmp_path / "wide.gguf")
    whole = file.read_bytes()
    key = b"llama.feed_forward_length"
    at = whole.index(key) + len(key) + 4  # behind the key stand its type, and then the number
    file.write_bytes(whole[:at] + (96).to_bytes(4, "little") + whole[at + 4 :])
    with pytest.raises(UsageError, match=r"mlp\.\w+\.weight does not fit the sizes"):
        store.resolve(file)
    assert _leftovers(home) == []


@pytest.mark.parametrize(
    ("file", "begins"),
    [
        (".hidden.gguf", "hidden-"),
        ("...gguf", "model-"),
        ("模型.gguf", "model-"),
        ("x" * 245 + ".gguf", "x" * 60 + "-"),
    ],
)
def test_whatever_a_gguf_is_called_its_model_is_listed_and_removable(tiny, tmp_path, home, file, begins):
    (tmp_path / file).write_bytes(tiny.read_bytes())
    said: list[str] = []
    directory = store.resolve(tmp_path / file, say=said.append)
    assert store.resolve(tmp_path / file, say=said.append) == directory
    assert len(said) == 1
    assert directory.name.startswith(begins)
    assert [model.card.name for model in store.list_models()] == [directory.name]
    assert store.remove(directory.name) > 0
    assert _leftovers(home) == []


def test_pull_takes_the_model_out_of_a_wheel_once(index, home, monkeypatch):
    said: list[str] = []
    path = store.pull("tiny", say=said.append)
    assert path == home / "models" / "tiny"
    assert store.read_card(path).license == "MIT"
    assert any("downloading" in line for line in said)
    assert any("converting" in line for line in said)
    assert _leftovers(home) == ["tiny"]
    monkeypatch.setenv("PIP_FIND_LINKS", "/nowhere")
    assert store.pull("tiny") == store.resolve("tiny") == path


def test_a_wrong_checksum_is_refused(index, home, tiny, monkeypatch):
    _know(monkeypatch, tiny, sha256="0" * 64)
    with pytest.raises(UsageError, match="wrong SHA-256"):
        store.pull("tiny")
    assert _leftovers(home) == []


def test_a_failed_download_is_one_line(index, home, tiny, monkeypatch):
    _know(monkeypatch, tiny, requirement="tiny-model==2.0")
    with pytest.raises(UsageError, match=r"pip could not download tiny-model==2\.0") as caught:
        store.pull("tiny")
    assert "\n" not in str(caught.value)
    assert _leftovers(home) == []


def test_two_processes_make_one_model(tiny, home):
    script = "import sys; from benchmax.inference.weights.store import resolve; print(resolve(sys.argv[1]))"
    command = [sys.executable, "-c", script, str(tiny)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    paths = {process.communicate(timeout=60)[0].strip() for process in both}
    assert [process.returncode for process in both] == [0, 0]
    assert len(paths) == 1
    assert (Path(paths.pop()) / "model.safetensors").is_file()
    assert len(_leftovers(home)) == 1


def test_a_full_disk_is_one_line_and_leaves_nothing(tiny, home):
    script = (
        "import resource, sys\n"
        "from benchmax.errors import UsageError\n"
        "from benchmax.inference.weights.store import resolve\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))\n"
        "try:\n    resolve(sys.argv[1])\n"
        "except UsageError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tiny)], capture_output=True, text=True, timeout=60)
    assert "is full" in done.stdout, done.stderr
    assert "BENCHMAX_HOME" in done.stdout
    assert _leftovers(home) == []


def test_too_little_space_is_said_before_the_download(index, monkeypatch, tiny):
    known = store.KNOWN["tiny"]
    wheel = known.wheel
    monkeypatch.setattr(store, "KNOWN", {"tiny": store.KnownModel("tiny", "Tiny", "MIT", wheel, disk_bytes=10**18)})
    with pytest.raises(UsageError, match="is full"):
        store.pull("tiny", say=lambda what: pytest.fail(what))


def test_what_a_killed_process_left_is_cleared(tiny, home):
    name = store.resolve(tiny).name
    store.remove(name)
    stale = home / "models" / f".tmp-{name}-ab_c0123"
    stale.mkdir()
    (stale / "half.safetensors").write_bytes(b"x" * 100)
    half = home / "models" / name
    half.mkdir()
    (half / "config.json").write_text("{}")
    assert store.list_models() == []
    assert (store.resolve(tiny) / "benchmax.json").is_file()
    assert not stale.exists()


def test_a_model_that_another_process_removes_first_is_not_there(tiny, home, monkeypatch):
    name, locked = store.resolve(tiny).name, store._locked

    def late(name):
        monkeypatch.setattr(store, "_locked", locked)
        store.remove(name)
        return locked(name)

    monkeypatch.setattr(store, "_locked", late)
    with pytest.raises(NotFoundError, match="There is no model named"):
        store.remove(name)
    assert _leftovers(home) == []


def _truncate(file):
    os.truncate(file, file.stat().st_size // 2)


def _empty(file):
    file.write_text("")


@pytest.mark.parametrize(
    ("file", "damage", "told"),
    [
        ("model.safetensors", _truncate, "cannot be read"),
        ("model.safetensors", _empty, "cannot be read"),
        ("model.safetensors", Path.unlink, "no .safetensors"),
        ("config.json", _empty, "is not JSON"),
        ("config.json", Path.unlink, "no config.json"),
    ],
)
def test_damage_to_a_stored_model_is_told_with_what_to_do(tiny, home, file, damage, told):
    directory = store.resolve(tiny)
    damage(directory / file)
    for asked in (directory.name, str(tiny)):
        error = CliRunner().invoke(app, ["pull", asked]).exception
        assert isinstance(error, UsageError)
        assert told in str(error)
        assert str(error).endswith(f"Run: benchmax models rm {directory.name}, and then pull or add it again.")
    store.remove(directory.name)
    assert store.resolve(tiny) == directory


def test_a_stored_model_is_checked_without_reading_its_weights(tiny):
    """Damage that only the weights themselves would show is left to whoever loads them."""
    file = store.resolve(tiny) / "model.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[:-4] + b"\xff" * 4)
    assert store.pull(file.parent.name) == file.parent


def test_an_engine_names_the_file_it_cannot_read(folder):
    _truncate(folder / "model.safetensors")
    with pytest.raises(UsageError, match=r"model\.safetensors cannot be read: .* Copy or save the model again"):
        Engine.from_directory(folder, device="cpu")
    _empty(folder / "config.json")
    with pytest.raises(UsageError, match=r"config\.json is not JSON"):
        Engine.from_directory(folder, device="cpu")


@pytest.mark.parametrize(
    "name", ["a" * 300, "é" * 200, "a" * 300 + ".gguf", "./" + "a" * 300, "~nobody-here/x", "a\0b"]
)
def test_what_cannot_be_a_file_is_no_model(name):
    for use in (store.resolve, store.pull, store.remove):
        with pytest.raises(NotFoundError, match="There is no model"):
            use(name)


@pytest.mark.parametrize("name", ["a" * 300, "a" * 300 + ":latest"])
def test_what_cannot_be_a_file_is_no_run(name):
    assert pin_checkpoint(name) == name


def test_an_unknown_name_gets_a_suggestion_and_the_list():
    with pytest.raises(NotFoundError, match=r"Did you mean smollm2-135m\? Known: smollm2-135m"):
        store.resolve("smolm2-135")
    with pytest.raises(NotFoundError, match="There is no model at"):
        store.resolve("./nothing/here.gguf")


@pytest.mark.parametrize("name", ["..", ".", "../models", "a/../b/c"])
def test_names_do_not_leave_the_store(name, home):
    (home / "models").mkdir(parents=True)
    (home / "benchmax.json").write_text("{}")
    with pytest.raises(NotFoundError):
        store.remove(name)
    assert home.exists()


def test_a_hub_id_without_the_hub_is_one_line(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(NotFoundError, match="could not be fetched from the model hub") as caught:
        store.resolve("no-such-org-x/no-such-model-x")
    assert "\n" not in str(caught.value)


def test_command_line(index, home):
    run = CliRunner().invoke
    assert "not here yet" in run(app, ["list"]).stdout
    missing = run(app, ["path", "tiny"])
    assert isinstance(missing.exception, NotFoundError)
    pulled = run(app, ["pull", "tiny", "--json"])
    assert json.loads(pulled.stdout)["license"] == "MIT"
    assert pulled.stderr.count("\n") == 1
    assert run(app, ["path", "tiny"]).stdout.strip() == str(home / "models" / "tiny")
    (listed,) = json.loads(run(app, ["list", "--json"]).stdout)
    assert (listed["name"], listed["license"]) == ("tiny", "MIT")
    assert "MIT" in run(app, ["list"]).stdout
    assert json.loads(run(app, ["path", "tiny", "--json"]).stdout)["path"] == str(home / "models" / "tiny")
    assert json.loads(run(app, ["rm", "tiny", "--json"]).stdout)["freed_bytes"] > 100_000
    assert not (home / "models" / "tiny").exists()


def test_an_evaluation_tells_that_it_fetches_the_model(index, capsys):
    from benchmax.cli.local.models import open_named
    from benchmax.envs.arithmetic import ArithmeticEnv

    def opened(model, base_url=None):
        model = open_named(model, ArithmeticEnv, [], base_url)
        asyncio.run(model.aclose())

    opened("scripted:gold")
    opened("tiny", "http://127.0.0.1:1/v1")
    assert (store.list_models(), capsys.readouterr().err) == ([], "")
    opened("tiny")
    assert [model.card.name for model in store.list_models()] == ["tiny"]
    assert capsys.readouterr().err.startswith("tiny: downloading")


def test_a_directory_gets_a_name(tiny, home, tmp_path):
    folder = tmp_path / "exported"
    folder.mkdir()
    convert(tiny, folder)
    run = CliRunner().invoke
    added = run(app, ["add", "mine", str(folder), "--json"])
    assert json.loads(added.stdout) == {"name": "mine", "path": str(home / "models" / "mine")}
    (listed,) = store.list_models()
    assert listed.card.parameters == sum(each.size for each in load_file(folder / "model.safetensors").values())
    assert (listed.card.name, listed.card.dtype) == ("mine", "float32")
    assert store.resolve("mine") == home / "models" / "mine"
    for wrong in (["mine", str(folder)], ["../x", str(folder)], ["new", str(tmp_path / "home")]):
        assert isinstance(run(app, ["add", *wrong]).exception, UsageError)
    assert isinstance(run(app, ["add", "new", str(tmp_path / "absent")]).exception, NotFoundError)
    (folder / "model.safetensors").write_bytes(b"short")
    assert "cannot be read" in str(run(app, ["add", "new", str(folder)]).exception)
    assert _leftovers(home) == ["mine"]


@pytest.fixture
def folder(tiny, tmp_path, monkeypatch):
    """A model's folder called `mine`, where we stand."""
    (tmp_path / "here" / "mine").mkdir(parents=True)
    convert(tiny, tmp_path / "here" / "mine")
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here" / "mine"


def test_a_stored_name_wins_over_a_folder_of_that_name(folder, home):
    assert store.resolve("mine") == Path("mine")
    store.add("mine", folder)
    run = CliRunner().invoke
    assert run(app, ["path", "mine"]).stdout.strip() == str(home / "models" / "mine")
    assert run(app, ["path", "./mine"]).stdout.strip() == "mine"
    assert store.resolve(folder) == folder
    (folder / "metrics.jsonl").touch()
    assert find_run("mine") is None
    assert find_run("./mine") == Path("mine")


def test_a_folder_is_neither_fetched_nor_removed(folder, home):
    run = CliRunner().invoke
    pulled = run(app, ["pull", "./mine"]).stdout
    assert "nothing to fetch" in pulled
    assert "benchmax models add NAME ./mine" in pulled
    assert json.loads(run(app, ["pull", "./mine", "--json"]).stdout) == {"path": "mine"}
    removed = run(app, ["rm", "./mine"])
    assert str(removed.exception) == "There is no model named './mine'. Stored: none."
    assert folder.is_dir()


@pytest.mark.parametrize(("text", "told"), [("{oops", "is not JSON"), ("[]", "holds no JSON object")])
def test_a_broken_config_is_told_as_that(folder, text, told):
    (folder / "config.json").write_text(text)
    for use in (store.resolve, ChatTokens):
        with pytest.raises(UsageError, match=rf"config\.json {told}") as caught:
            use(folder)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *((key, value) for key in SIZES for value in (None, 0, -1, "many", 1.5, True, [4])),
        *((key, value) for key in ("num_key_value_heads", "head_dim") for value in (0, 3, "many")),
        *(("rms_norm_eps", value) for value in (None, 0, float("nan"), "small", [])),
        *(("rope_parameters", value) for value in (["default"], {"rope_theta": "x"}, {"rope_type": "linear"})),
        ("rope_parameters", {"rope_type": "llama3", "factor": 8.0}),
        ("rope_parameters", {"rope_type": ["default"]}),
        ("num_attention_heads", 65),
    ],
)
def test_a_config_with_a_wrong_size_is_one_line(folder, key, value):
    config = json.loads((folder / "config.json").read_text())
    del config["head_dim"]
    assert ModelSpec.from_config(config).head_dim == 16
    changed = {**config, key: value}
    if value is None:
        del changed[key]
    (folder / "config.json").write_text(json.dumps(changed))
    with pytest.raises(UsageError, match=r"config\.json: The ") as caught:
        Engine.from_directory(folder, device="cpu")
    assert "\n" not in str(caught.value)


def test_the_documents_name_every_architecture():
    page = (Path(__file__).parents[3] / "docs" / "models.md").read_text()
    assert all(f"`{kind}`" in page for kind in SUPPORTED)


def test_a_run_says_that_its_model_is_fetched(index):
    assert loading_text("tiny") == "fetching tiny (0 MB), then loading it"
    store.pull("tiny")
    assert loading_text("tiny") == loading_text("/some/folder") == "loading the model"


def test_audit_on_the_command_line(tiny):
    clean = CliRunner().invoke(app, ["audit", str(tiny)])
    assert clean.exit_code == 0, clean.output
    assert "0 that matter" in clean.stdout


def test_an_audit_shows_what_differs_where_the_text_is_the_same(tiny):
    """The header's line end and the reply's first are one token when rendered together."""
    shown = CliRunner().invoke(app, ["audit", str(tiny)]).stdout
    findings = json.loads(CliRunner().invoke(app, ["audit", str(tiny), "--json"]).stdout)
    (alike,) = [finding for finding in findings if finding["expected"] == finding["got"]]
    one, two = TOKENS.index("ĊĊ"), TOKENS.index("Ċ")
    start = alike["got_tokens"]["start"]
    assert alike["expected_tokens"] == {"start": start, "ids": [one]}
    assert alike["got_tokens"]["ids"] == [two, two]
    assert f"template  '\\n\\n'  (token {start}: {one})" in shown
    assert f"got       '\\n\\n'  (token {start}: {two}, {two})" in shown


def test_the_cache_is_where_it_is_said_to_be(monkeypatch):
    monkeypatch.delenv("BENCHMAX_HOME")
    monkeypatch.setenv("HOME", "/somewhere")
    assert os.fspath(store.models_dir()) == "/somewhere/.cache/benchmax/models"


def test_a_model_in_the_making_is_left_alone_by_one_whose_name_it_continues(tiny, home, tmp_path):
    folder = tmp_path / "exported"
    folder.mkdir()
    convert(tiny, folder)
    other = home / "models" / ".tmp-mine-135m-k3_x9abc"
    other.mkdir(parents=True)
    store.add("mine", folder)
    assert other.is_dir()
