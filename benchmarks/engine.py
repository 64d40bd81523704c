"""Tokens per second of the engine, beside transformers.generate on the same prompts in the same run.

    python benchmarks/engine.py --model DIR --device cpu --batches 1,8,64 --new 64 --compare-generate

`engine` and `generate` are whole runs, prompts and all; `ratio` compares them. `decode` and `generate_decode`
are the second half of the tokens, compared by `decode_ratio`: the engine's by when they reached the last request,
whose prompt is computed last, and generate's as whole runs less runs of half the length. On a
CPU the columns ending in _cpu count processor time instead of the clock. On CUDA it also prints the floor set
by memory bandwidth (weights, keys and values, logits, at the copy bandwidth measured here) and the share of it
that was reached. Prompts are random ids, all different, with no stop token, so every request runs to its last
token.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from functools import partial
from itertools import accumulate

import torch

from benchmax.inference.engine.engine import Engine, SamplingParams


def prompts_of(count, length, vocab, seed):
    chance = random.Random(seed)
    return [[chance.randrange(3, vocab) for _ in range(length)] for _ in range(count)]


def sample(engine, prompts, new, base=0, on_tokens=None):
    """Seconds to sample `new` tokens for every prompt; `on_tokens` hears of the last one's."""
    began = time.perf_counter()
    hears = [None] * (len(prompts) - 1) + [on_tokens]
    futures = [
        engine.submit(prompt, SamplingParams(max_tokens=new, seed=base + i), on_tokens=hear)
        for i, (prompt, hear) in enumerate(zip(prompts, hears, strict=True))
    ]
    for future in futures:
        assert len(future.result(600).ids) == new
    return time.perf_counter() - began


def timed(action):
    """Seconds by the clock, and seconds of processor time."""
    began, busy = time.perf_counter(), time.process_time()
    action()
    return time.perf_counter() - began, time.process_time() - busy


def cpu_rate(tokens, runs):
    """Tokens per second had every thread a core of its own: for machines with other work on them."""
    return tokens * torch.get_num_threads() / min(busy for _, busy in runs)


def bandwidth():
    """Bytes per second of a large device copy, read and write counted."""
    source = torch.randn(1 << 29, device="cuda")
    target = torch.empty_like(source)
    times = []
    for _ in range(12):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        target.copy_(source)
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / 1e3)
    return 2 * source.numel() * 4 / statistics.median(times[2:])


def floor_tokens(engine, batch, prompt, new, speed):
    """Tokens per second if a decode step only moved its bytes once: a mean step of the second half."""
    spec, size = engine.spec, engine.weights.dtype.itemsize
    kv = batch * (prompt + new * 3 / 4) * 2 * spec.layers * spec.kv_width * size
    scores = 2 * batch * spec.vocab * size
    return batch / ((engine.weights.bytes + kv + scores) / speed)


def decode_rate(engine, batch, options, seed):
    """Tokens per second while all rows decode and no prompt is computed.

    The news before the last one is taken for the end: with the last come the endings of all requests.
    """
    heard = []
    prompts = prompts_of(batch, options.prompt, engine.spec.vocab, seed)
    sample(engine, prompts, options.new, seed, lambda ids, _: heard.append((len(ids), time.perf_counter())))
    counts = list(accumulate(count for count, _ in heard))
    half = next(at for at, count in enumerate(counts) if count >= options.new // 2)
    return batch * (counts[-2] - counts[half]) / (heard[-2][1] - heard[half][1])


def measure_engine(engine, options, batch, speed):
    vocab = engine.spec.vocab
    sample(engine, prompts_of(batch, options.prompt, vocab, 99), min(options.new, 16))  # compiles and captures
    sets = [prompts_of(batch, options.prompt, vocab, run) for run in range(options.runs)]
    runs = [timed(lambda p=prompts, s=run: sample(engine, p, options.new, s)) for run, prompts in enumerate(sets)]
    row = {"batch": batch, "engine": batch * options.new / min(seconds for seconds, _ in runs)}
    if not speed:
        row["engine_cpu"] = cpu_rate(batch * options.new, runs)
    if speed:
        row["decode"] = statistics.median(decode_rate(engine, batch, options, seed) for seed in range(7))
        row["floor"] = floor_tokens(engine, batch, options.prompt, options.new, speed)
        row["share"] = row["decode"] / row["floor"]
    return row


def measure_generate(options, batch, model, vocab):
    def once(new, seed):
        ids = torch.tensor(prompts_of(batch, options.prompt, vocab, seed), device=model.device)
        with torch.inference_mode():
            out = model.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=new, min_new_tokens=new,
                do_sample=True, temperature=1.0, top_k=0, top_p=1.0, pad_token_id=0,
            )  # fmt: skip
        out.cpu()

    on_gpu = options.device == "cuda"
    if on_gpu:
        once(options.new, 99)
    runs = [timed(lambda run=run: once(options.new, run)) for run in range(options.runs)]
    tokens = batch * options.new
    row = {"generate": tokens / min(seconds for seconds, _ in runs)}
    if on_gpu:
        half = options.new // 2
        long, short = (min(timed(partial(once, new, seed))[0] for seed in range(5)) for new in (options.new, half))
        row["generate_decode"] = batch * (options.new - half) / (long - short)
    else:
        row["generate_cpu"] = cpu_rate(tokens, runs)
    return row


def compare(row, options, model, vocab):
    """Add generate's figures to the engine's row."""
    row.update(measure_generate(options, row["batch"], model, vocab))
    row["ratio"] = row["engine"] / row["generate"]
    if options.device == "cuda":
        row["decode_ratio"] = row["decode"] / row["generate_decode"]
    else:
        row["ratio_cpu"] = row["engine_cpu"] / row["generate_cpu"]


def measure_groups(engine, groups, size, new, length):
    """One sampling phase of a training step: `groups` prompts, `size` samples each."""

    def once(seed):
        prompts = prompts_of(groups, length, engine.spec.vocab, seed)
        return sample(engine, [prompt for prompt in prompts for _ in range(size)], new, seed * 10_000)

    once(1)
    return min(once(seed) for seed in (2, 3, 4))


def measure_update(engine):
    """Seconds to swap in every weight."""
    state = {name: view.clone() for name, (view, _) in engine.weights.targets.items()}
    engine.update_weights(state)
    began = time.perf_counter()
    engine.update_weights(state)
    return time.perf_counter() - began


def load_generate(options):
    from transformers import AutoModelForCausalLM

    dtype = torch.bfloat16 if options.device == "cuda" else torch.float32
    model = AutoModelForCausalLM.from_pretrained(options.model, dtype=dtype).to(options.device).eval()
    model.generation_config.eos_token_id = None
    return model


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="directory of config.json and safetensors")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batches", default="1,8,64,256")
    parser.add_argument("--new", type=int, default=64, help="tokens per sample")
    parser.add_argument("--prompt", type=int, default=32, help="tokens per prompt")
    parser.add_argument("--runs", type=int, default=2, help="repeats; the best counts")
    parser.add_argument("--groups", default="", help="GROUPSxSIZExNEW; default 32x16x24 on CUDA, none on CPU")
    parser.add_argument("--compare-generate", action="store_true")
    parser.add_argument("--no-kernels", action="store_true", help="plain torch instead of Triton")
    parser.add_argument("--no-graphs", action="store_true", help="no CUDA graphs")
    parser.add_argument("--profile", action="store_true", help="CUDA: time by kernel of one warm run of the last batch")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def profile(engine, options, batch):
    """Time by kernel of one warm run, to standard error."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as recorder

    with recorder(activities=[ProfilerActivity.CUDA]) as record:
        sample(engine, prompts_of(batch, options.prompt, engine.spec.vocab, 77), options.new)
    table = record.key_averages().table(sort_by="cuda_time_total", row_limit=25, max_name_column_width=60)
    print(table, file=sys.stderr)


def main():
    options = arguments()
    batches = [int(batch) for batch in options.batches.split(",")]
    groups = options.groups or ("32x16x24" if options.device == "cuda" else "")
    most = max(batches)
    if groups:
        most = max(most, int(groups.split("x")[0]) * int(groups.split("x")[1]))
    began = time.perf_counter()
    engine = Engine.from_directory(
        options.model, device=options.device, slots=most, kernels=not options.no_kernels, graphs=not options.no_graphs,
        max_len=max(512, options.prompt + options.new + 1),
    )  # fmt: skip
    opened = time.perf_counter() - began
    speed = bandwidth() if options.device == "cuda" else 0.0
    rows = [measure_engine(engine, options, batch, speed) for batch in batches]
    report = {"device": options.device, "threads": torch.get_num_threads(), "open_seconds": opened, "rows": rows}
    if groups:
        count, size, new = map(int, groups.split("x"))
        report["groups"] = {"case": groups, "seconds": measure_groups(engine, count, size, new, options.prompt)}
    report["update_ms"] = measure_update(engine) * 1e3
    report["bandwidth_gb_s"] = speed / 1e9
    report["stats"] = engine.stats()
    if options.profile and speed:
        profile(engine, options, batches[-1])
    engine.close()
    if options.compare_generate:
        model = load_generate(options)
        for row in rows:
            compare(row, options, model, engine.spec.vocab)
    show(report, options.json)


def show(report, as_json):
    if as_json:
        print(json.dumps(report, indent=1))
        return
    for row in report["rows"]:
        cells = [f"{name} {value:,.{2 if 'ratio' in name or name == 'share' else 0}f}" for name, value in row.items()]
        print("   ".join(cells))
    if "groups" in report:
        print(f"groups {report['groups']['case']}: {report['groups']['seconds']:.3f} s")
    print(f"weight swap {report['update_ms']:.1f} ms; opened in {report['open_seconds']:.1f} s")
    stats = report["stats"]
    print(f"kernels {stats['kernels']}, graphs {stats['graphs']}, copy {report['bandwidth_gb_s']:,.0f} GB/s")
    print(*stats["notes"], sep="\n")


if __name__ == "__main__":
    main()
