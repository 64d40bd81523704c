"""GRPO from scratch: teach a small language model to add, with nothing but torch and transformers.

This is the algorithm of benchmax's trainer without benchmax, to be read from top to bottom:

    1. ask    every question is answered several times by the model itself
    2. score  a program, not a person, gives each answer a reward
    3. compare an answer that did better than its siblings gets a positive advantage, a worse one a negative
    4. update make the tokens of better answers likelier, and those of worse ones less likely
    5. repeat

    python examples/grpo_from_scratch.py MODEL_DIR          (any instruct model; SmolLM2-135M learns it on a laptop)
"""

import argparse
import random
import re
import time

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

# ----------------------------------------------------------------------------------------------------------------------
# The task: one-digit sums, answered in tags.

SYSTEM = "Answer in <answer> tags."
SHOWN_QUESTION, SHOWN_ANSWER = "5 + 7?", "5 + 7 = <answer>12</answer>"


def all_questions():
    """Every sum of two digits but the one shown as an example, in a fixed random order."""
    pairs = [(a, b) for a in range(10) for b in range(10) if (a, b) != (5, 7)]
    random.Random(0).shuffle(pairs)
    return pairs


def prompt_ids(tokenizer, a, b):
    """The conversation up to the point where the model has to speak, as token ids."""
    messages = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": SHOWN_QUESTION},  # without an example turn a model this small never finds the form
        {"role": "assistant", "content": SHOWN_ANSWER},
        {"role": "user", "content": f"{a} + {b}?"},
    ]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def reward(text, a, b):
    """0.2 for a number in the tags, 0.8 more when it is the right one. Empty tags earn nothing, or the model
    would soon write nothing else."""
    found = re.search(r"<answer>\s*(-?\d{1,18})\s*</answer>", text)
    if found is None:
        return 0.0
    return 0.2 + 0.8 * (int(found[1]) == a + b)


# ----------------------------------------------------------------------------------------------------------------------
# 1. Ask. The sampling loop of every language model: look at the next-token distribution, draw, append, again.


@torch.no_grad()
def sample(model, prompts, samples, max_new_tokens, stop_id, temperature=1.0, generator=None):
    """Answer each prompt `samples` times. Returns, for each prompt, a list of lists of token ids."""
    device = model.device
    rows = [prompt for prompt in prompts for _ in range(samples)]
    width = max(map(len, rows))
    # Prompts are padded on the left, so that all rows speak at the same time; the padding is never looked at.
    ids = torch.tensor([[stop_id] * (width - len(row)) + row for row in rows], device=device)
    seen = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows], device=device)
    answers = [[] for _ in rows]
    speaking = torch.ones(len(rows), dtype=torch.bool)
    cache = None
    for _ in range(max_new_tokens):
        positions = (seen.cumsum(-1) - 1).clamp(min=0)[:, -ids.shape[1] :]
        out = model(
            ids, attention_mask=seen, position_ids=positions, past_key_values=cache, use_cache=True, logits_to_keep=1
        )
        cache = out.past_key_values  # keys and values of everything so far: no token is computed twice
        logits = out.logits[:, -1].float()
        if temperature == 0:
            token = logits.argmax(-1)
        else:
            # Gumbel noise: adding it and taking the largest draws exactly from the softmax.
            noise = torch.rand(logits.shape, generator=generator, device=device).clamp(1e-9, 1 - 1e-9)
            token = (logits / temperature - torch.log(-torch.log(noise))).argmax(-1)
        for row, drawn in enumerate(token.tolist()):
            if speaking[row]:
                answers[row].append(drawn)  # the end-of-turn token is part of the answer: stopping is learned too
                speaking[row] = drawn != stop_id
        if not speaking.any():
            break
        ids = token[:, None]
        seen = torch.cat([seen, seen.new_ones(len(rows), 1)], dim=1)
    return [answers[i : i + samples] for i in range(0, len(answers), samples)]


# ----------------------------------------------------------------------------------------------------------------------
# 3. Compare. The baseline of an answer is the mean reward of its siblings: no value network, no critic.


def advantages(rewards):
    """How much better than its siblings each answer did, in standard deviations."""
    rewards = torch.tensor(rewards)
    return (rewards - rewards.mean()) / (rewards.std() + 1e-4)


# ----------------------------------------------------------------------------------------------------------------------
# 4. Update. The probability of each sampled token, and the clipped policy-gradient loss on it.


def token_logprobs(model, prompt, answers, pad_id):
    """log p(token | everything before it) for every token of every answer: [answers, longest], and a mask."""
    longest = max(map(len, answers))
    rows = [prompt + answer + [pad_id] * (longest - len(answer)) for answer in answers]
    ids = torch.tensor(rows, device=model.device)
    logits = model(ids).logits[:, len(prompt) - 1 : -1].float()  # position t predicts token t + 1
    targets = ids[:, len(prompt) :]
    logp = torch.log_softmax(logits, dim=-1).gather(-1, targets[..., None])[..., 0]
    lengths = torch.tensor([len(answer) for answer in answers], device=model.device)
    mask = torch.arange(longest, device=model.device)[None] < lengths[:, None]
    return logp, mask


def grpo_loss(logp, old_logp, advantage, mask, tokens, clip_low=0.2, clip_high=0.28):
    """-min(ratio·A, clip(ratio)·A), averaged over all `tokens` of the step.

    The ratio says how much likelier a token has become since it was sampled. Clipping ends the reward for pushing it
    further: one batch of samples can only justify so much change. With a single update per batch the ratio is 1, and
    this is the plain policy gradient; the code stays the same for several."""
    ratio = torch.exp(logp - old_logp)
    clipped = ratio.clamp(1 - clip_low, 1 + clip_high)
    per_token = -torch.minimum(ratio * advantage[:, None], clipped * advantage[:, None])
    return (per_token * mask).sum() / tokens


def learn(model, optimizer, groups, pad_id, updates=1):
    """Groups of (prompt, answers, rewards) into changed weights. Returns the first loss and the groups used."""
    # Siblings with equal rewards say nothing about what is better: they cost nothing either.
    groups = [(prompt, answers, advantages(scores)) for prompt, answers, scores in groups if len(set(scores)) > 1]
    if not groups:
        return 0.0, 0
    tokens = sum(len(answer) for _, answers, _ in groups for answer in answers)
    old, losses = [None] * len(groups), []
    for _ in range(updates):
        total = 0.0
        for index, (prompt, answers, advantage) in enumerate(groups):
            logp, mask = token_logprobs(model, prompt, answers, pad_id)
            if old[index] is None:
                old[index] = logp.detach()
            loss = grpo_loss(logp, old[index], advantage.to(logp.device), mask, tokens)
            loss.backward()  # gradients of all groups add up; memory holds one group at a time
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(total)
    return losses[0], len(groups)


# ----------------------------------------------------------------------------------------------------------------------
# 5. Repeat.


def accuracy(model, tokenizer, questions, max_new_tokens, stop_id):
    """Share of held-out questions answered right when the model always takes its likeliest token."""
    prompts = [prompt_ids(tokenizer, a, b) for a, b in questions]
    answers = sample(model, prompts, 1, max_new_tokens, stop_id, temperature=0)
    right = [reward(tokenizer.decode(group[0]), a, b) == 1 for group, (a, b) in zip(answers, questions, strict=True)]
    return sum(right) / len(right)


def main():
    parser = argparse.ArgumentParser(description="GRPO on one-digit sums, from scratch.")
    parser.add_argument("model", help="directory of an instruct model")
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--prompts", type=int, default=8, help="questions a step")
    parser.add_argument("--samples", type=int, default=8, help="answers to each question")
    parser.add_argument("--lr", type=float, default=1e-5)
    parser.add_argument("--max-new-tokens", type=int, default=24)
    parser.add_argument("--updates", type=int, default=1, help="optimizer steps on each batch")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()

    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32).to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.0)
    generator = torch.Generator(args.device).manual_seed(args.seed)
    rng = random.Random(args.seed)
    stop_id = tokenizer.eos_token_id
    questions = all_questions()
    train, held_out = questions[:67], questions[67:]

    print(f"held-out accuracy before: {accuracy(model, tokenizer, held_out, args.max_new_tokens, stop_id):.2f}")
    began = time.time()
    for step in range(args.steps):
        chosen = rng.sample(train, args.prompts)
        prompts = [prompt_ids(tokenizer, a, b) for a, b in chosen]
        answers = sample(model, prompts, args.samples, args.max_new_tokens, stop_id, generator=generator)
        scores = [
            [reward(tokenizer.decode(answer), a, b) for answer in group]
            for group, (a, b) in zip(answers, chosen, strict=True)
        ]
        loss, used = learn(model, optimizer, list(zip(prompts, answers, scores, strict=True)), stop_id, args.updates)
        mean = sum(map(sum, scores)) / (args.prompts * args.samples)
        print(
            f"step {step:3d}  reward {mean:.2f}  loss {loss:+.4f}  groups with signal {used}/{args.prompts}  "
            f"{time.time() - began:.0f} s"
        )
    print(f"held-out accuracy after: {accuracy(model, tokenizer, held_out, args.max_new_tokens, stop_id):.2f}")


if __name__ == "__main__":
    main()
