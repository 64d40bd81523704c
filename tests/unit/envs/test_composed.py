"""Several environments in one: rows, tools, rewards and solutions of each part stay its own."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmax import metrics
from benchmax.bundle import dump_bundle
from benchmax.doctor import examine_sync
from benchmax.doctor.first_samples import first_samples
from benchmax.envs.arithmetic import ArithmeticEnv
from benchmax.envs.base_env import BaseEnv, primary_key
from benchmax.envs.calculator import CalculatorEnv
from benchmax.envs.composed import ComposedEnv, compose
from benchmax.envs.composed.parts import part_of, spec_of, split_parts
from benchmax.envs.datasets.load import load_examples
from benchmax.envs.datasets.split import hold_out
from benchmax.envs.loading import find_rows, load_env_class, own_rows
from benchmax.envs.remote import open_remote_env
from benchmax.envs.types import ChatMessage, Example, ToolCall, ToolDefinition
from benchmax.errors import DatasetError, EnvDefinitionError, UsageError
from benchmax.evaluation.evaluate import evaluate
from benchmax.models.registry import gold_model
from benchmax.models.scripted import ScriptedModel
from benchmax.rollouts.groups import run_batch, run_group
from benchmax.rollouts.host import EnvHost
from benchmax.rollouts.play import run_rollout
from benchmax.rollouts.replay import replay
from benchmax.rollouts.settings import RolloutSettings
from benchmax.trainer.sampling.prompt_selection import PromptStream
from benchmax.trainer.sampling.step_metrics import rollout_metrics

BOTH = compose("arithmetic", "calculator")


class Lookup(BaseEnv):
    """A tool of its own named `calculate`, state, arguments, a plain reward and one over siblings."""

    system_prompt = "Look it up."
    recommended_max_tool_calls = 1

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix
        self.words: dict[str, str] = {}
        self.released: list[str] = []

    @classmethod
    def dataset_preprocess(cls, example: Any, **kwargs: Any) -> Example:
        made = super().dataset_preprocess(example, **kwargs)
        return {**made, "init_rollout_args": {"word": example["word"]}}

    @classmethod
    def load_dataset(cls, dataset_name: str = "", **kwargs: Any) -> tuple[list[dict[str, str]], None]:
        return [{"prompt": f"word {number}?", "word": f"w{number}", "env": "a column"} for number in range(40)], None

    def list_tools(self) -> list[ToolDefinition]:
        return [ToolDefinition("calculate", "Say the word.", {"type": "object", "properties": {}})]

    def run_tool(self, rollout_id: str, tool_name: str, **tool_args: Any) -> str:
        return self.prefix + self.words[rollout_id]

    async def compute_reward(
        self, rollout_id: str, messages: Sequence[ChatMessage], task: Mapping[str, Any] | None, word: str = ""
    ) -> dict[str, float]:
        assert task is not None
        assert task["env"] == "a column"
        assert task["word"] == word
        return {"said": float(word in str(messages[-1]["content"]))}

    def compute_group_reward(
        self, rollout_ids: list[str], messages_list: Sequence[Any], tasks: Sequence[Any]
    ) -> list[dict[str, float]]:
        assert len({task["word"] for task in tasks}) == 1
        return [{"siblings": len(rollout_ids) / 10} for _ in rollout_ids]

    async def init_rollout(self, rollout_id: str, **rollout_args: Any) -> None:
        self.words[rollout_id] = rollout_args["word"]

    async def release_rollout(self, rollout_id: str) -> None:
        self.released.append(self.words.pop(rollout_id))


def examples(env_class: type[BaseEnv], rows: int = 8) -> list[Example]:
    return list(load_examples(list(own_rows(env_class))[:rows], env_class).examples)


# Naming


def test_a_text_a_list_and_a_table_name_the_same() -> None:
    assert split_parts("math=2, crm") == {"math": 2.0, "crm": 1.0}
    assert split_parts(spec_of({"math": 2, "crm": 1})) == split_parts(spec_of(["math=2", "crm"]))


ABOVE_0 = r"Give a number above 0, or leave the environment out\.$"


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("math=0,crm", rf"The weight of 'math' is 0\.0\. {ABOVE_0}"),
        ("math=-1,crm", rf"The weight of 'math' is -1\.0\. {ABOVE_0}"),
        ("math=nan,crm", rf"The weight of 'math' is nan\. {ABOVE_0}"),
        ("math=x,crm", r"'math=x' is not NAME or NAME=WEIGHT\. Write weights as numbers"),
        ("math,math", r"named twice\. Name it once"),
        (",", r"No environment is named\. Write them with commas"),
        ("math,,crm", r"a comma with no environment beside it\. Write math,crm\.$"),
        ("math,", r"a comma with no environment beside it\. Write math\.$"),
        ("math=2", r"weighs one environment against none\. Leave the weight out: math\.$"),
        ("math,crmm", r"no environment named 'crmm'\. Did you mean 'crm'"),
    ],
)
def test_weights_and_names_that_cannot_be(spec: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        load_env_class(spec)


def test_an_argument_names_its_part() -> None:
    with pytest.raises(UsageError, match=r"Write it like --env-arg crm\.level=VALUE\.$"):
        compose("arithmetic", "crm")(level="steps")


def test_a_file_and_a_name_are_parts_named_by_their_last_word(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(
        "from benchmax import BaseEnv\nclass Mine(BaseEnv):\n"
        "    async def compute_reward(self, rollout_id, messages, task, **kw):\n        return {'x': 1.0}\n"
    )
    found = load_env_class(f"{file}:Mine=3,benchmax.envs.arithmetic.arithmetic_env.ArithmeticEnv,arithmetic")
    assert issubclass(found, ComposedEnv)
    assert list(found.parts) == ["Mine", "ArithmeticEnv", "arithmetic"]
    assert found.weights == {"Mine": 3.0, "ArithmeticEnv": 1.0, "arithmetic": 1.0}


def test_a_part_is_an_environment_and_is_not_composed() -> None:
    with pytest.raises(EnvDefinitionError, match="composed itself"):
        compose(a=BOTH)
    with pytest.raises(EnvDefinitionError, match="Give an environment class"):
        compose(a=int)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="no part 'b' to weigh"):
        compose(a=ArithmeticEnv, weights={"b": 1})
    with pytest.raises(UsageError, match=r"Write it like --env-arg calculator\.KEY=VALUE"):
        BOTH(calculator=3)
    with pytest.raises(UsageError, match=r"Lookup takes no argument 'prefex'. Did you mean 'prefix'"):
        compose(look=Lookup)(look={"prefex": "x"})


# Rows


def test_rows_are_mixed_by_weight_from_the_beginning_on() -> None:
    mixed = load_env_class("arithmetic=1,calculator=3")
    rows = list(own_rows(mixed))
    counts = Counter(row["env"] for row in rows)
    assert counts["calculator"] / counts["arithmetic"] == pytest.approx(3, rel=0.02)
    assert Counter(row["env"] for row in rows[:8]) == {"arithmetic": 2, "calculator": 6}


def test_each_part_may_be_given_other_rows(tmp_path: Path) -> None:
    file = tmp_path / "sums.jsonl"
    file.write_text("".join(f'{{"question": "{n} + 1?", "ground_truth": "{n + 1}"}}\n' for n in range(20)))
    rows = find_rows(BOTH, f"arithmetic={file}")
    assert Counter(row["env"] for row in rows) == {"arithmetic": 20, "calculator": 20}
    assert {row["row"]["question"] for row in rows if row["env"] == "arithmetic"} == {f"{n} + 1?" for n in range(20)}
    with pytest.raises(UsageError, match="does not name data by part"):
        find_rows(BOTH, "strange=rows")


def test_a_file_names_the_part_in_a_column() -> None:
    rows = [{"env": "arithmetic", "question": "1 + 1?", "ground_truth": "2"}]
    (made,) = load_examples(rows, BOTH)
    assert part_of(made) == "arithmetic"
    assert made["prompt_messages"][0] == {"role": "system", "content": ArithmeticEnv.system_prompt}
    with pytest.raises(DatasetError, match=r"names the environment .*other.* there are: arithmetic, calculator"):
        load_examples([{"env": "other"}], BOTH)


def test_the_same_row_of_two_parts_has_two_ids() -> None:
    twice = compose(one=ArithmeticEnv, two=ArithmeticEnv)
    row = {"question": "1 + 1?", "ground_truth": "2"}
    one, two = load_examples([{"env": "one", "row": row}, {"env": "two", "row": row}], twice)
    assert one["id"] != two["id"]


@pytest.mark.parametrize("order", ["spread", "last"])
def test_each_part_holds_out_its_share(order: Any) -> None:
    five = compose(**{f"p{number}": ArithmeticEnv for number in range(5)})
    made = examples(five, 200)
    train, held_out = hold_out(made, 0.2, order=order, part=part_of)
    assert set(Counter(map(part_of, held_out)).values()) == {8}
    assert len({*(e["id"] for e in train)} & {*(e["id"] for e in held_out)}) == 0


def test_every_step_has_prompts_of_every_part() -> None:
    five = compose(**{f"p{number}": ArithmeticEnv for number in range(5)})
    stream = PromptStream(examples(five, 400), seed=3)
    for _ in range(100):
        assert len({part_of(each) for each in stream.take(8)}) == 5
    fresh = PromptStream(stream.examples, seed=3)
    fresh.restore(stream.state())
    assert [e["id"] for e in fresh.take(8)] == [e["id"] for e in stream.take(8)]


# Rollouts


async def test_rollouts_see_the_tools_budgets_and_rewards_of_their_part_alone() -> None:
    mixed = compose(look=Lookup, calc=CalculatorEnv)
    seen: dict[str, list[str]] = {}

    def answer(messages: Sequence[ChatMessage]) -> Any:
        return ToolCall("calculate") if messages[-1]["role"] == "user" else str(messages[-1]["content"])

    class Watching(ScriptedModel):
        def converse(self, *, tools: Sequence[ToolDefinition] = (), **kwargs: Any) -> Any:
            seen.setdefault(";".join(tool.description for tool in tools), [])
            return super().converse(tools=tools, **kwargs)

    made = {part_of(each): each for each in examples(mixed)}
    async with EnvHost(lambda: mixed(look={"prefix": "> "})) as host:
        names = [tool.name for tool in (await host.toolbox()).tools]
        assert names == ["look__calculate", "calc__calculate"]
        played = {
            part: await run_group(host, example, Watching(answer), samples=range(3)) for part, example in made.items()
        }
        look = host.env._envs["look"]  # type: ignore[attr-defined]
        assert not look.words
        assert len(look.released) == 3
    assert len(seen) == 2
    for rollout in played["look"]:
        word = made["look"]["task"]["word"]  # type: ignore[index]
        assert rollout.env == "look"
        assert rollout.messages[-1]["content"] == f"> {word}"
        assert rollout.rewards == {"look/said": 1.0, "look/siblings": 0.3}
    for rollout in played["calc"]:
        assert rollout.rewards == {"calc/called": 0.0, "calc/correct": 0.0}
        assert rollout.ok


async def test_a_tool_of_another_part_is_unknown() -> None:
    env = compose(one=ArithmeticEnv, calc=CalculatorEnv)()
    made = {part_of(each): each for each in examples(type(env))}
    await env.init_rollout("a", **(made["one"]["init_rollout_args"] or {}))
    await env.init_rollout("b", **(made["calc"]["init_rollout_args"] or {}))
    assert await env.run_tool("b", "calculate", expression="6 * 7") == "42"
    assert await env.run_tool("b", "calc__calculate", expression="6 * 7") == "42"
    with pytest.raises(Exception, match="no tool named 'calculate'"):
        await env.run_tool("a", "calculate", expression="6 * 7")
    with pytest.raises(Exception, match="was not begun"):
        await env.run_tool("c", "calculate", expression="6 * 7")


async def test_gold_answers_solve_every_part_and_the_report_has_each() -> None:
    made = examples(BOTH, 20)
    async with EnvHost(BOTH) as host:
        done = await evaluate(host, made, gold_model(BOTH, made))
        values = rollout_metrics([[rollout] for rollout in done.rollouts], primary_key(host.env))
        again = [pair async for pair in replay(host, done.rollouts)]
    assert done.report.solve_rate is not None
    assert done.report.solve_rate.mean == 1.0
    assert {name: part.examples for name, part in done.report.parts.items()} == {"arithmetic": 10, "calculator": 10}
    assert done.report.to_dict()["parts"]["calculator"]["reward"]["mean"] == pytest.approx(1.0)
    for part in BOTH.parts:
        assert values[metrics.of_part(part, metrics.SOLVE_RATE)] == 1.0
        assert values[metrics.of_part(part, metrics.ROLLOUTS)] == 10
    assert values[metrics.component("calculator/correct")] == 1.0
    assert all(after.reward == before.reward for before, after in again)


async def test_a_primary_component_counts_for_its_own_part_only() -> None:
    made = examples(BOTH, 2)
    async with EnvHost(BOTH) as host:
        done = await evaluate(host, made, ScriptedModel("<answer>0</answer>"))
        assert [metrics.solved(rollout, primary_key(host.env)) for rollout in done.rollouts] == [False, False]
    assert done.report.reward is not None
    assert done.report.reward.mean == pytest.approx(0.1)  # the form is paid in arithmetic alone


async def test_a_hundred_rollouts_at_once_leave_no_state() -> None:
    mixed = compose(look=Lookup, calc=CalculatorEnv, sums=ArithmeticEnv)
    made = examples(mixed, 102)

    def answer(messages: Sequence[ChatMessage]) -> Any:
        asked = str(messages[-1]["content"])
        return ToolCall("calculate") if messages[-1]["role"] == "user" and "word" in asked else asked

    async with EnvHost(mixed) as host:
        done = await evaluate(host, made, ScriptedModel(answer), concurrency=102)
        env = host.env
        assert isinstance(env, mixed)
        assert not env._rollouts
        assert not env._envs["look"].words  # type: ignore[attr-defined]
    assert all(r.rewards["look/said"] == 1.0 for r in done.rollouts if r.env == "look")
    assert not done.report.errors


# Solutions and checks


async def test_the_signal_is_measured_part_by_part() -> None:
    made = examples(BOTH, 40)

    def only_sums(messages: Sequence[ChatMessage]) -> str:
        a, sign, b = str(messages[-1]["content"]).rstrip("?").split()
        return f"<answer>{int(a) + int(b) if sign == '+' else 0}</answer>"

    async with EnvHost(BOTH) as host:
        signal = await first_samples(host, made, ScriptedModel(only_sums), samples=2)
    assert signal.unready == {"calculator"}
    assert not signal.ready
    assert signal.parts["arithmetic"].ready
    assert "calculator: " in signal.forecast


def test_the_doctor_examines_each_part() -> None:
    class Constant(ArithmeticEnv):
        async def compute_reward(self, *args: Any, **kwargs: Any) -> dict[str, float]:
            return {"correct": 1.0}

    mixed = compose(good=ArithmeticEnv, flat=Constant)
    diagnosis = examine_sync(mixed, rows=list(own_rows(mixed))[:60], pace="quick")
    assert diagnosis.errors
    assert all(each.title.startswith("flat: ") for each in diagnosis.errors)
    assert {stat.name for stat in diagnosis.components} == {"good/format", "good/correct", "flat/correct"}
    strange = examine_sync(BOTH, rows=[*list(own_rows(BOTH))[:40], {"env": "no"}], pace="quick")
    assert [each.check for each in strange.errors] == ["unknown-part"]


# Elsewhere


def test_a_bundle_of_it_opens_in_another_process(tmp_path: Path) -> None:
    bundle = dump_bundle(compose("arithmetic", "calculator", weights={"arithmetic": 2}))
    (tmp_path / "cls.pkl").write_bytes(bundle.pickled)
    code = (
        "import pickle, pathlib; cls, _ = pickle.loads(pathlib.Path('cls.pkl').read_bytes()); "
        "print(cls.__name__, list(cls.parts), cls.weights['arithmetic'], len(cls().composed_of))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split(None, 1)[0] == "arithmetic_calculator"
    assert done.stdout.strip().endswith("2.0 2")


async def test_it_plays_in_a_process_of_its_own() -> None:
    mixed = compose(look=Lookup, calc=CalculatorEnv)
    env = await open_remote_env(dump_bundle(compose("arithmetic", "calculator")))
    try:
        made = examples(BOTH, 8)
        async with EnvHost(lambda: env) as host:
            done = await evaluate(host, made, gold_model(BOTH, made))
            calc = next(each for each in made if part_of(each) == "calculator")
            assert [t.name for t in (await host.toolbox(host.part_of(calc))).tools] == ["calculate"]
            assert (await host.toolbox("arithmetic")).tools == []
    finally:
        await env.shutdown()
    assert {name: part.solve_rate.mean for name, part in done.report.parts.items() if part.solve_rate} == {
        "arithmetic": 1.0, "calculator": 1.0,
    }  # fmt: skip
    assert mixed.compute_group_reward is not BaseEnv.compute_group_reward


def test_what_is_typed_goes_to_the_part_that_is_named() -> None:
    made = BOTH.playground_preprocess(prompt="3 + 4?", env="calculator")
    assert part_of(made) == "calculator"
    assert made["task"] is None
    assert part_of(BOTH.playground_preprocess(prompt="3 + 4?")) == "arithmetic"


def test_closing_it_closes_every_part() -> None:
    closed: list[str] = []

    class Closing(ArithmeticEnv):
        async def shutdown(self) -> None:
            closed.append("closed")

    async def close() -> None:
        async with EnvHost(compose(a=Closing, b=Closing)):
            pass

    asyncio.run(close())
    assert closed == ["closed", "closed"]


async def test_a_part_whose_plain_hooks_hang_leaves_threads_to_the_others() -> None:
    release = threading.Event()

    class Hangs(BaseEnv):
        def compute_reward(self, rollout_id: str, messages: Any, task: Any, **kwargs: Any) -> dict[str, float]:
            if "hang" in messages[0]["content"]:
                release.wait(60.0)
            return {"x": 1.0}

    env_class = compose(hangs=Hangs, other=CalculatorEnv)
    rows = [{"env": "hangs", "prompt": f"hang {number}"} for number in range(40)]
    async with EnvHost(env_class) as host:
        examples = load_examples([*rows, {"env": "hangs", "prompt": "fine"}], env_class)
        short = RolloutSettings(reward_seconds=0.5)
        hung = await run_batch(host, examples[:-1], ScriptedModel("x"), short)
        assert not any(rollout.ok for rollout in hung)
        assert (await run_rollout(host, examples[-1], ScriptedModel("x"))).ok
    release.set()


async def test_a_tool_argument_may_have_any_name() -> None:
    class Names(BaseEnv):
        async def list_tools(self) -> list[ToolDefinition]:
            return [ToolDefinition("say", "Says it.")]

        def run_tool(self, rollout_id: str, tool_name: str, **given: Any) -> str:
            return str(given)

        async def compute_reward(self, rollout_id: str, messages: Any, task: Any, **kwargs: Any) -> dict[str, float]:
            return {"x": 1.0}

    env_class = compose(names=Names, other=CalculatorEnv)
    (example,) = load_examples([{"env": "names", "prompt": "x"}], env_class)
    async with EnvHost(env_class) as host:
        call = ToolCall("say", '{"function": 1, "hook": 2}')
        rollout = await run_rollout(host, example, ScriptedModel([call, "done"]))
    assert rollout.messages[-2]["content"] == "{'function': 1, 'hook': 2}"
