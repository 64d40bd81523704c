"""Rollouts for the console's tests: conversations with tools, failures and saved tokens, and as many as one likes."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

SYSTEM = "You answer questions about the company's documents. Use the tools; answer in one sentence."
QUESTIONS = [
    ("How many employees does the Oslo office have?", "214"),
    ("When was the travel policy last changed?", "3 March 2025"),
    ("Which team owns the billing service?", "Payments Platform"),
    ("What is the daily meal allowance in Japan?", "9,500 yen"),
    ("Who approves laptops above 2,000 dollars?", "the head of IT"),
    ("How long are security logs kept?", "400 days"),
]


def record(
    step: int, example: int, sample: int, *, split: str = "train", quality: float = 0.5, noise=None, **more
) -> dict:
    """One rollout as the trainer writes it: it searches, reads, answers."""
    noise = noise or random.Random(step * 1000 + example * 10 + sample)
    question, gold = QUESTIONS[example % len(QUESTIONS)]
    right = noise.random() < quality
    failed = noise.random() < 0.15
    answer = (
        f"It is {gold}."
        if right
        else noise.choice(["I could not find this.", f"Probably around {noise.randint(2, 90)}."])
    )
    found = {"results": [{"title": "Handbook, chapter 4", "text": f"… {gold} …", "score": round(noise.random(), 3)}]}
    call = {
        "id": "call_1",
        "type": "function",
        "function": {"name": "search", "arguments": json.dumps({"query": question, "limit": 3})},
    }
    read = {"id": "call_2", "type": "function", "function": {"name": "read_page", "arguments": json.dumps({"page": 4})}}
    messages = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": "Where is the head office?"},
        {"role": "assistant", "content": "In Lyon."},
        {"role": "user", "content": question},
        {"role": "assistant", "content": "I will look it up.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "name": "search", "content": json.dumps(found)},
        {"role": "assistant", "content": "", "tool_calls": [read]},
        {
            "role": "tool",
            "tool_call_id": "call_2",
            "name": "read_page",
            "content": "TimeoutError: the page did not load"
            if failed
            else f"Chapter 4\n\nThe answer is {gold}. It applies to everybody.\n",
        },
        {"role": "assistant", "content": answer},
    ]
    correct, brief = (1.0 if right else 0.0), round(0.5 + 0.5 * noise.random(), 3)
    base = {
        "v": 1,
        "id": f"{split}-{step}-{example}-{sample}-{noise.getrandbits(32):08x}",
        "example_id": f"example-{example}",
        "sample": sample,
        "attempt": 0,
        "env": "HandbookEnv",
        "model": "demo",
        "split": split,
        "step": step,
        "messages": messages,
        "completion_start": 4,
        "task": {"ground_truth": gold, "document": "Handbook 2025, chapter 4"},
        "init_rollout_args": None,
        "rewards": {"correct": correct, "brief": brief, "penalty": -0.1 if failed else 0.0},
        "unscored": {},
        "reward": round(correct + 0.2 * brief - (0.1 if failed else 0), 4),
        "termination": "finished",
        "ok": True,
        "turns": 3,
        "usage": {"prompt_tokens": 180, "completion_tokens": noise.randint(30, 240), "cost_usd": 0.0},
        "started_at": 1_760_000_000.0 + step * 60,
        "seconds": {"init": 0.01, "model": 1.4, "tools": 0.35, "reward": 0.004, "total": 1.77},
        "tool_events": [
            {"turn": 1, "name": "search", "ok": True, "seconds": 0.12},
            {"turn": 2, "name": "read_page", "ok": not failed, "seconds": 0.23},
        ],
        "logs": [
            {"level": "INFO", "message": f"searched for {question!r}", "seconds": 0.2},
            {"level": "WARNING", "message": "the index is two days old", "seconds": 0.3},
        ],
        "advantage": round((correct - quality) * 1.7, 4),
    }
    return base | more


def tokens_of(text: str) -> list[dict]:
    """Saved tokens of a short answer: what was given, then what was sampled."""
    return [
        {"ids": list(range(8)), "sampled": False, "logprobs": None},
        {
            "ids": [ord(letter) - 32 for letter in text],
            "sampled": True,
            "logprobs": [-abs(math.sin(i)) * 3 for i in range(len(text))],
        },
    ]


def write_run(folder: Path, records, vocabulary: list[str] | None = None) -> Path:
    """A run directory with these rollouts and a metric line for each step."""
    (folder / "rollouts").mkdir(parents=True, exist_ok=True)
    by_file: dict[tuple[str, int], list[dict]] = {}
    for each in records:
        by_file.setdefault((each["split"], each["step"]), []).append(each)
    lines = []
    for (split, step), found in by_file.items():
        text = "".join(json.dumps(each) + "\n" for each in found)
        (folder / "rollouts" / f"{split}-{step}.jsonl").write_text(text, "utf-8")
        scored = [each["reward"] for each in found if each["reward"] is not None]
        mean = sum(scored) / len(scored) if scored else 0.0
        lines.append(
            {
                "step": step,
                "split": split,
                "time": 1_760_000_000.0 + step * 60,
                "values": {"reward/mean": mean, "pass@k": mean, "max@k": mean, "response_tokens/mean": 120.0},
            }
        )
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    if vocabulary is not None:
        (folder / "vocabulary.json").write_text(json.dumps(vocabulary), "utf-8")
    return folder


def handbook(folder: Path, steps: int = 12, examples: int = 4, samples: int = 4) -> Path:
    """A training that gets better: train and eval rollouts, some failed, some left out, the last with tokens."""
    records = []
    for step in range(steps):
        quality = 0.15 + 0.8 * step / max(1, steps - 1)
        for example in range(examples):
            for sample in range(samples):
                records.append(record(step, example, sample, quality=quality))
        if step % 3 == 0:
            records += [
                record(step, example, sample, split="eval", quality=quality)
                for example in range(len(QUESTIONS))
                for sample in range(2)
            ]
    last = [each for each in records if each["step"] == steps - 1 and each["split"] == "train"]
    last[0] |= {"tokens": tokens_of("It is 214. The handbook says so in chapter 4.")}
    last[1] |= {
        "reward": None,
        "rewards": {"brief": 0.7},
        "unscored": {"correct": "JudgeError: the judge did not answer in 30 s"},
        "ok": False,
        "termination": "reward_error",
        "error": {"type": "JudgeError", "message": "the judge did not answer in 30 s", "where": "compute_reward"},
        "discarded": "unscored",
    }
    last[2] |= {"termination": "output_exceeded", "discarded": "overlong"}
    last[3] |= {"discarded": "no signal in its group", "advantage": 0.0}
    return write_run(folder, records, vocabulary=[chr(32 + i) for i in range(96)])


def other_model(world, run_id: str, name: str = "GPT-OSS 20B", quality: float = 0.45, seed: int = 5) -> str:
    """An eval of another model on the same rows, finished."""
    from benchmax.platform.store.runs import evals, rollouts

    noise = random.Random(seed)
    with world.database.write() as session:
        row = evals.create(session, run_id, model="base", name=name, total=len(QUESTIONS))
        evals.set_progress(session, row.id, status="active", done=0)
        eval_id = row.id
    file = world.data.run(run_id) / "rollouts" / f".eval-{eval_id}.jsonl"
    rows, offset = [], 0
    with open(file, "wb") as out:
        for example in range(len(QUESTIONS)):
            each = record(0, example, 0, split="eval", quality=quality, noise=noise)
            line = (json.dumps(each, ensure_ascii=False) + "\n").encode()
            rows.append(
                rollouts.row_of(
                    each,
                    file=f"rollouts/{file.name}",
                    offset=offset,
                    length=len(line),
                    split=evals.SPLIT,
                    eval_id=eval_id,
                )
            )
            out.write(line)
            offset += len(line)
    with world.database.write() as session:
        rollouts.index(session, run_id, rows)
        evals.set_progress(
            session, eval_id, status="complete", done=len(rows), total=len(rows), summary={"reward": 0.4}
        )
    return eval_id


def add_many(world, run_id: str, steps: int = 500, examples: int = 25, samples: int = 8) -> int:
    """Index rows alone, as many as a large training leaves; every one reads the same record."""
    from benchmax.platform.store.runs import rollouts

    folder = world.data.run(run_id) / "rollouts"
    folder.mkdir(parents=True, exist_ok=True)
    noise, made = random.Random(3), 0
    for step in range(steps):
        rows = []
        for example in range(examples):
            for sample in range(samples):
                each = record(step, example, sample, noise=noise, quality=step / steps)
                each["example_id"] = f"example-{step % 40}-{example}"
                rows.append(rollouts.row_of(each, file="rollouts/none.jsonl", offset=0, length=10))
        with world.database.write() as session:
            made += rollouts.index(session, run_id, rows)
    return made
