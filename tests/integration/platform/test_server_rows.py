"""Rows that a run would refuse are refused at its launch; an empty eval file and a folder mean what clients mean."""

import json

import pytest

from benchmax.bundle import dump_bundle, known_row_reader
from benchmax.envs.arithmetic import ArithmeticEnv
from benchmax.envs.base_env import BaseEnv
from benchmax.envs.example_id import make_example
from benchmax.platform.client import StorageClient
from benchmax.platform.store.runs import runs
from benchmax.platform.store.uploads.blobs import BlobStore


class Plain(BaseEnv):
    """Takes the columns every environment knows."""

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"x": 1.0}


class Own(Plain):
    """Reads rows in its own way."""

    @classmethod
    def dataset_preprocess(cls, example, **kwargs):
        return make_example([{"role": "user", "content": example["riddle"]}], task=example)


class Sum(ArithmeticEnv):
    pass


@pytest.fixture(scope="module")
def key(live):
    return live.user()[1]


@pytest.fixture
def upload(live, key):
    def upload(path, content):
        with StorageClient(key, live.url) as storage:
            return storage.upload_file(path, content, "application/octet-stream")["blobPath"]

    return upload


def lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def prompts(count, start=0, **more):
    return [{"prompt": f"{n} + 1?", "ground_truth": str(n + 1), **more} for n in range(start, start + count)]


RIDDLES = [{"riddle": f"what is {n}?", "ground_truth": str(n)} for n in range(20)]


@pytest.fixture
def env(upload):
    def env(env_class):
        bundle, folder = dump_bundle(env_class), f"envs/{env_class.__name__}/1"
        return {
            "env_cls_path": upload(f"{folder}/env-cls.pkl", bundle.pickled),
            "env_metadata_path": upload(f"{folder}/env-metadata.json", bundle.metadata.to_json_bytes()),
        }

    return env


def launch(client, **args):
    return client.post("/v1/train/runs/launch", json={"args": args})


def run_of(live, answer):
    assert answer.status_code == 201, answer.text
    with live.database.read() as session:
        return runs.get(session, answer.json()["runId"])


def rows_of(live, run, name):
    text = BlobStore(live.data.blobs).path(run.blobs[name]).read_text()
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def test_who_reads_the_rows_is_known_without_opening_the_bundle():
    for env_class, reader in ((Plain, ""), (Own, None), (ArithmeticEnv, "arithmetic"), (Sum, "arithmetic")):
        bundle = dump_bundle(env_class)
        assert known_row_reader(bundle.pickled, bundle.metadata) == reader, env_class


@pytest.mark.parametrize(
    ("encoding", "end"), [("utf-8-sig", "\n"), ("utf-16", "\n"), ("utf-16", "\r\n"), ("utf-8", "\r")]
)
def test_a_list_counts_the_rows_that_a_reader_reads(client, upload, encoding, end):
    text = end.join([*map(json.dumps, prompts(17)), " ", ""])
    path = upload(f"datasets/{encoding}-{len(end)}-{ord(end[0])}.jsonl", text.encode(encoding))
    listed = client.get("/v1/datasets", params={"prefix": path}).json()["datasets"]
    read = client.get("/v1/datasets/preview", params={"path": path}).json()
    assert (read["rows"], [each["rows"] for each in listed]) == (17, [17])


@pytest.mark.parametrize("suffix", ["jsonl", "json"])
def test_rows_the_environment_cannot_use_are_refused_with_row_column_reason_and_fix(client, env, upload, suffix):
    rows = prompts(30)
    rows[4] = {"prompt": "", "ground_truth": "5"}
    rows[7] = {"riddle": "?", "ground_truth": "8"}
    text = lines(rows) if suffix == "jsonl" else json.dumps(rows).encode()
    bad, good = upload(f"datasets/bad.{suffix}", text), upload("datasets/good.jsonl", lines(prompts(4)))
    for paths in (
        {"train_dataset_path": bad, "eval_dataset_path": good},
        {"train_dataset_path": upload("datasets/t.jsonl", lines(prompts(20))), "eval_dataset_path": bad},
        {"dataset_path": bad},
    ):
        refused = launch(client, **env(Plain), **paths)
        assert refused.status_code == 400
        error = refused.json()["error"]
        assert f"2 of 30 rows of datasets/bad.{suffix} cannot be used" in error
        assert f"datasets/bad.{suffix}" in error.splitlines()[1]
        assert "prompt" in error
        assert "Nothing was launched." in error
        assert "/tmp" not in error, "the server's own paths are its own business"


def test_only_usable_rows_count(client, live, env, upload):
    few = upload("datasets/few.jsonl", lines(prompts(15)) + b"\n\n")
    refused = launch(client, **env(Plain), dataset_path=few)
    assert "at least 16 training rows; there are 15" in refused.json()["error"]
    enough = upload("datasets/enough.jsonl", b"\n" + lines(prompts(40)))
    run = run_of(live, launch(client, **env(Plain), dataset_path=enough, eval_share=0.25))
    assert len(rows_of(live, run, "train_dataset_path")) == 30
    assert len(rows_of(live, run, "eval_dataset_path")) == 10


def test_an_environment_with_code_of_its_own_is_not_second_guessed(client, live, env, upload):
    riddles = upload("datasets/riddles.jsonl", lines(RIDDLES))
    assert run_of(live, launch(client, **env(Own), dataset_path=riddles))
    refused = launch(client, **env(Plain), dataset_path=riddles)
    assert (refused.status_code, "20 of 20 rows" in refused.json()["error"]) == (400, True)
    refused = launch(client, environment="arithmetic", dataset_path=riddles)
    assert (refused.status_code, "question" in refused.json()["error"]) == (400, True)


def test_the_preview_reads_rows_as_the_uploaded_environment_does(client, env, upload):
    upload("datasets/riddles.jsonl", lines(RIDDLES))
    env(Plain), env(Own)
    ids = {each["name"]: each["id"] for each in client.get("/v1/environments").json()["environments"]}
    for name, usable in (("Plain", 0), ("Own", 20)):
        asked = {"path": "datasets/riddles.jsonl", "environment": ids[name]}
        seen = client.get("/v1/datasets/preview", params=asked).json()
        assert (seen["usable"], seen["environment"]) == (usable, ids[name])
    assert client.get("/v1/datasets/preview", params=asked | {"environment": "env_none"}).status_code == 404


# What clients mean


@pytest.mark.parametrize("empty", [b"\n", b"", b"\n \n\t\n"], ids=["newline", "nothing", "blank lines"])
def test_an_eval_file_without_rows_has_training_rows_held_out(client, live, env, upload, empty):
    paths = {"train_dataset_path": upload("datasets/p/train.jsonl", lines(prompts(40))),
             "eval_dataset_path": upload("datasets/p/eval.jsonl", empty)}  # fmt: skip
    answer = launch(client, **env(Plain), **paths)
    assert "The eval dataset has no rows; 8 of the training rows are held out." in answer.json()["warnings"]
    run = run_of(live, answer)
    train, held_out = (rows_of(live, run, name) for name in ("train_dataset_path", "eval_dataset_path"))
    assert (len(train), len(held_out)) == (32, 8)
    assert sorted((*train, *held_out), key=str) == sorted(prompts(40), key=str)


def test_with_just_enough_rows_none_is_held_out_and_that_is_said(client, live, env, upload):
    paths = {"train_dataset_path": upload("datasets/s/train.jsonl", lines(prompts(16))),
             "eval_dataset_path": upload("datasets/s/eval.jsonl", b"\n")}  # fmt: skip
    answer = launch(client, **env(Plain), **paths)
    assert any("too few to hold any out" in warning for warning in answer.json()["warnings"])
    assert len(rows_of(live, run_of(live, answer), "train_dataset_path")) == 16


async def test_a_run_launched_before_holds_out_too(tmp_path):
    from benchmax.platform.runner.children.train_child import held_out_examples, load_task

    class Reads:
        async def preprocess(self, file, **options):
            return [json.loads(line) for line in file.read_text().splitlines()]

    files = {"train_dataset_path": tmp_path / "train.jsonl", "eval_dataset_path": tmp_path / "eval.jsonl"}
    files["train_dataset_path"].write_bytes(lines(prompts(40)))
    files["eval_dataset_path"].write_text("\n")
    task = await load_task(Reads(), files)
    assert (len(task.train), len(task.held_out)) == (32, 8)
    assert await held_out_examples(Reads(), files) == list(task.held_out)
    files["eval_dataset_path"].write_bytes(lines(prompts(3)))
    assert len(await held_out_examples(Reads(), files)) == 3


def test_a_folder_stands_for_its_two_files(client, live, env, upload):
    upload("datasets/folder/1/train.jsonl", lines(prompts(20)))
    upload("datasets/folder/1/eval.jsonl", lines(prompts(4, start=20)))
    upload("datasets/folder/1/extra/train.jsonl", lines(prompts(1)))
    for path in ("datasets/folder/1", "datasets/folder/1/"):
        run = run_of(live, launch(client, **env(Plain), dataset_path=path))
        assert run.paths["train_dataset_path"] == "datasets/folder/1/train.jsonl"
        assert run.paths["eval_dataset_path"] == "datasets/folder/1/eval.jsonl"
    upload("datasets/alone/train.jsonl", lines(prompts(20)))
    alone = run_of(live, launch(client, **env(Plain), dataset_path="datasets/alone"))
    assert len(rows_of(live, alone, "eval_dataset_path")) == 4
    for path in ("datasets/fold", "datasets/folder", "datasets/none"):
        assert launch(client, **env(Plain), dataset_path=path).status_code == 404, path


CHAT = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]


def test_supervised_rows_as_published_clients_send_them(client, live, upload):
    rows = [{"messages": CHAT, "tools": [], "metadata": {"n": n}} for n in range(20)]
    upload("datasets/sft/1/train.jsonl", lines(rows))
    upload("datasets/sft/1/eval.jsonl", lines(rows[:5]))
    body = {
        "name": "s",
        "dataset": {"format": "benchmax-sft-v1", "path": "datasets/sft/1", "digest": "of the rows", "rows": 20},
        "args": {"num_epochs": 1, "learning_rate": 1e-5, "max_context_tokens": 8192, "save_interval": 20, "seed": 42,
                 "lora_rank": 32, "global_batch_size": 4, "lr_decay_style": "cosine", "grad_clip": None},
        "eval": {"rows": 5, "digest": "of those"},
    }  # fmt: skip
    answer = client.post("/v1/train/runs/sft", json=body)
    run = run_of(live, answer)
    assert (run.kind, run.args["eval_rows"], run.args["prompts_per_step"], run.total_steps) == ("sft", 5, 4, 5)
    assert len(rows_of(live, run, "train_dataset_path")) == 25
    unused = "Not used in a supervised run here: lr_decay_style, max_context_tokens, save_interval."
    assert unused in answer.json()["warnings"]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"messages": CHAT[:1]}, "messages: does not end with an assistant turn. Add the answer"),
        ({"messages": [{"role": "robot", "content": "x"}, CHAT[1]]}, "Row 3 of datasets/b.jsonl, messages"),
        ({"prompt": "hi"}, "Row 3 of datasets/b.jsonl: has neither"),
    ],
)
def test_a_supervised_row_with_nothing_to_learn_is_refused(client, upload, row, words):
    upload("datasets/b.jsonl", lines([{"messages": CHAT}] * 2 + [row]))
    answer = client.post("/v1/train/runs/sft", json={"dataset": {"path": "datasets/b.jsonl"}})
    assert answer.status_code == 400
    assert words in answer.json()["error"]
