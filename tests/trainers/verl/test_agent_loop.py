"""verl's own worker with our agent loop: the tokens, masks, log-probs and rewards of everywhere else."""

from __future__ import annotations

import re
from pathlib import Path
from statistics import fmean

import pytest
from verl_world import ScriptedServer, batch_of, worker

from trainer_world import CASES, Script, expected

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "trainers" / "verl.md").read_text("utf-8")


def loop_of(case) -> str:
    (text,) = re.findall(r'```yaml title="benchmax.yaml"\n(.*?)```', PAGE, re.DOTALL)
    named = text.replace("env: arithmetic", f"env: {case.env.__module__}.{case.env.__name__}")
    return named.replace("max_turns: 4", f"max_turns: {case.max_turns}")


async def play(case, folder, next_turn, *, length=1500, count=None):
    server = ScriptedServer(next_turn)
    made = worker(case.template, folder, loop_of(case), server, length=length)
    return await made.generate_sequences(batch_of(case, count or len(case.samples))), server


def rows_of(output):
    batch, told = output.batch, output.non_tensor_batch
    found = []
    width = batch["prompts"].shape[1]
    for place in range(len(batch)):
        seen = batch["attention_mask"][place].bool()
        prompt, response = batch["prompts"][place][seen[:width]], batch["responses"][place][seen[width:]]
        size = len(response)
        found.append({
            "prompt": prompt.tolist(), "response": response.tolist(),
            "mask": batch["response_mask"][place][:size].tolist(),
            "logprobs": batch["rollout_log_probs"][place][:size].tolist(),
            "reward": float(batch["rm_scores"][place].sum()), "at": int(batch["rm_scores"][place].abs().argmax()),
            "ends": told["benchmax"][place]["termination"], "scored": told["benchmax_scored"][place],
        })  # fmt: skip
    return sorted(found, key=lambda row: row["response"])


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_the_trainer_receives_the_truth(case, tmp_path):
    output, server = await play(case, tmp_path, Script([case]).next_turn)
    truths = expected(case)
    mean = fmean(truth.reward for truth in truths if truth.reward is not None)
    for row, truth in zip(rows_of(output), truths, strict=True):
        assert row["prompt"] == truth.prompt_ids
        assert row["response"] == truth.response_ids
        assert row["mask"] == truth.mask
        assert row["logprobs"] == pytest.approx(truth.logprobs)
        assert row["reward"] == pytest.approx(mean if truth.reward is None else truth.reward)
        assert row["at"] == (len(truth.response_ids) - 1 if row["reward"] else 0)
        assert (row["ends"], row["scored"]) == (truth.ends, truth.reward is not None)
    assert len({session for session, _ in server.asked}) == len(case.samples)


TOOLS = next(case for case in CASES if str(case) == "chatml-tools")


async def test_an_engine_that_dies_costs_no_group(tmp_path):
    healthy, asked = Script([TOOLS]).next_turn, []

    def next_turn(prompt):
        asked.append(prompt)
        if len(asked) == 2:
            raise ConnectionError("server gone")
        return healthy(prompt)

    output, _ = await play(TOOLS, tmp_path, next_turn)
    rows = rows_of(output)
    (lost,) = (row for row in rows if row["ends"] == "model_error")
    assert not any(lost["mask"])
    assert lost["reward"] == pytest.approx(fmean(row["reward"] for row in rows if row is not lost))


async def test_an_outage_leaves_the_batch_whole(tmp_path):
    def next_turn(prompt):
        raise ConnectionError("server gone")

    rows = rows_of((await play(TOOLS, tmp_path, next_turn))[0])
    assert [(row["ends"], row["mask"], row["reward"]) for row in rows] == [("model_error", [0], 0.0)] * 4


async def test_the_response_stays_within_verls_limit(tmp_path):
    most = 400
    healthy = Script([TOOLS]).next_turn
    output, server = await play(TOOLS, tmp_path, healthy, length=most)
    assert output.batch["responses"].shape == (4, most)
    assert all(0 < params["max_tokens"] <= most for _, params in server.asked)


async def test_a_prompt_that_is_too_long_fails_and_is_not_cut(tmp_path):
    rows = rows_of((await play(TOOLS, tmp_path, Script([TOOLS]).next_turn, length=50))[0])
    assert {row["ends"] for row in rows} == {"context_exceeded"}
    assert not any(any(row["mask"]) for row in rows)
