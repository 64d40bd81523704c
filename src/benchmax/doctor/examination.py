"""The examination: play an environment's whole life on real rows, then everything a model might try.

Nothing is concluded here; what was seen goes to the chart, and the checks read it. The order goes from cheap to dear,
and an environment that hangs is left alone after its first deadline.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from time import perf_counter
from typing import Any

from benchmax.doctor import texts
from benchmax.doctor.chart import Chart, Mingled, Shot, Trial
from benchmax.doctor.lineup import Probe, edge_calls, in_turns, play_alone, play_group, tool_turns
from benchmax.doctor.watched import WatchedHost
from benchmax.envs.base_env import overrides
from benchmax.envs.reward_values import describe_error
from benchmax.envs.types import Example, ToolCall
from benchmax.errors import DeadlineExceeded, EnvDefinitionError
from benchmax.models.base import Sampling
from benchmax.rollouts.play import new_rollout, opened, play, run_rollout
from benchmax.rollouts.record import Rollout
from benchmax.rollouts.scoring import finish, score
from benchmax.rollouts.settings import RolloutSettings
from benchmax.rollouts.toolbox import Toolbox

PROBED = 4
"""Examples on which exploits are tried; the gold answer is tried on all."""
CROWD = 8
"""Gold answers scored at the same time."""
SCOUTED = 2
"""Examples on which the ways to write the gold answer are compared."""
NONCE = "benchmax-marker-7f3a91"


class Examination:
    """One environment on its host, being examined."""

    def __init__(self, chart: Chart, host: WatchedHost, limits: dict[str, int | None], group_samples: int) -> None:
        pace = chart.pace
        self.chart, self.host, self.group_samples = chart, host, group_samples
        self.settings = RolloutSettings(
            max_turns=limits.get("max_turns"),
            max_tool_calls=limits.get("max_tool_calls"),
            init_seconds=pace.init_seconds,
            tool_seconds=pace.tool_seconds,
            reward_seconds=pace.reward_seconds,
            release_seconds=pace.release_seconds,
            sampling=Sampling(max_tokens=None),
        )
        self._golds: dict[str, str] = {}
        self._began = perf_counter()

    async def run(self, rows: Sequence[Any]) -> None:
        chart = self.chart
        chart.env, chart.grouped = self.host.env, self.host.overrides("compute_group_reward")
        chart.gold_overridden = self.host.overrides("gold_completion")
        try:
            await self._read_tools()
            if chart.sample and not chart.tools_error and not chart.bad_tools:
                await self._play_everything()
            if overrides(self.host.env, "validate_probe"):
                await self._ask_own_probe(rows)
        finally:
            chart.calls, chart.blocking = self.host.calls, self.host.blocking_hooks
            chart.left_behind = _left_behind(chart)

    async def _play_everything(self) -> None:
        if not await self._survives_one():
            return
        await self._choose_form()
        if not self.chart.grouped:
            await self._play_gold()
        for step in (
            self._try_tools, self._try_edges, self._probe, self._repeat, self._rewrite_history, self._mingle,
            self._crowd, self._listen_across, self._small_group,
        ):  # fmt: skip
            if perf_counter() - self._began > self.chart.pace.probe_seconds:
                self.chart.cut_short = True
                return
            await step()

    # Tools

    async def _read_tools(self) -> None:
        chart = self.chart
        try:
            listed = list(await self.host.call("list_tools", deadline=chart.pace.init_seconds) or ())
        except Exception as error:
            chart.tools_error = describe_error(error)
            return
        for tool in listed:
            try:
                chart.tools += Toolbox([tool]).tools
            except EnvDefinitionError as error:
                chart.bad_tools[str(getattr(tool, "name", tool))[:80]] = str(error)
        names = [tool.name for tool in chart.tools]
        for name in names:
            if names.count(name) > 1:
                chart.bad_tools[name] = f"{names.count(name)} tools are named {name!r}."

    async def _try_tools(self) -> None:
        """Call each tool with made-up arguments on a few examples."""
        for example in self.chart.sample[:3] if self.chart.tools else ():
            probe = Probe("tools", "Done.", tool_turns(self.chart.tools))
            rollout = await run_rollout(self.host, example, probe.model(), self._free())
            shown = {m.get("tool_call_id"): str(m.get("content")) for m in rollout.completion if m["role"] == "tool"}
            for call in (call for turn in probe.turns for call in turn):
                seen = [c for c in self.host.calls if c.rollout_id == rollout.id and c.key == call.name]
                text = shown.get(call.id, "")
                self.chart.trials.append(
                    Trial(call.name, call.arguments_dict(), example, text, seen[0] if seen else None)
                )

    async def _try_edges(self) -> None:
        """Call each tool with the unusual values its schema allows, in one rollout."""
        calls = edge_calls(self.chart.tools)
        if not calls:
            return
        example = self.chart.sample[0]
        probe = Probe("edges", "Done.", in_turns(calls))
        rollout = await run_rollout(self.host, example, probe.model(), self._free())
        made = [c for c in self.host.calls if c.rollout_id == rollout.id and c.hook == "run_tool"]
        for call, seen in zip(calls, made, strict=False):  # both in the order of the calls
            self.chart.edge_trials.append(Trial(call.name, call.arguments_dict(), example, seen.said, seen))

    def _free(self) -> RolloutSettings:
        """Settings without budgets, to reach every tool."""
        return replace(self.settings, max_turns=32, max_tool_calls=512)

    async def _listen_across(self) -> None:
        """Write a marker with every tool of one rollout; no tool of another rollout may show it."""
        chart = self.chart
        if not chart.tools:
            return
        example = chart.sample[0]
        writer, reader = (
            Probe("tools", "Done.", tool_turns(chart.tools, NONCE, 2)),
            Probe("tools", "Done.", tool_turns(chart.tools, "test", 2)),
        )
        _, heard = await self._together([(example, writer), (example, reader)], self._free(), scored=False)
        for message in heard.completion:
            if message["role"] == "tool" and NONCE in str(message.get("content")):
                chart.crosstalk.append(f"{message.get('name')}: {str(message['content'])[:200]}")

    # Gold

    async def _survives_one(self) -> bool:
        """Play one plain answer first: what hangs or cannot start is not worth a hundred deadlines."""
        shots = await self._play(self.chart.sample[0], [Probe("first", texts.GARBAGE)])
        self.chart.shots += shots
        hung = any(isinstance(call.error, DeadlineExceeded) for call in self.host.calls)
        return bool(shots) and not hung

    def _own_gold(self, example: Example) -> str | None:
        try:
            text = self.host.env.gold_completion(example)
        except Exception as error:
            self.chart.gold_error = describe_error(error)
            return None
        return text if isinstance(text, str) else None

    async def _choose_form(self) -> None:
        """The way of writing the gold answer that earns most."""
        forms = texts.gold_forms(self._own_gold, self.chart.system_prompt, bool(self.chart.tools))
        if self.chart.gold_overridden and any(map(self._own_gold, self.chart.sample)):
            forms = [form for form in forms if form.write == self._own_gold]
        earned = dict.fromkeys((form.name for form in forms), 0.0)
        for example in self.chart.sample[:SCOUTED]:
            written = [(form, text) for form in forms if (text := form.write(example)) is not None]
            probes = [self._gold_probe(example, text, form) for form, text in written]
            for shot in await self._play(example, probes) if probes else ():
                if shot.total is not None and shot.kind in earned:
                    earned[shot.kind] += shot.total
        best = max(forms, key=lambda form: earned[form.name])
        self.chart.gold_form = best.name
        for example in self.chart.examples[:400]:
            if (text := best.write(example)) is not None:
                self._golds[example["id"]] = text
        for example in self.chart.sample:
            if (text := best.write(example)) is not None:
                self._golds[example["id"]] = text
        self._form = best

    def _gold_probe(self, example: Example, text: str, form: texts.Form | None = None, kind: str = "") -> Probe:
        """The gold answer to play, in the chosen form unless told another, after the tool calls it takes."""
        calls: tuple[tuple[ToolCall, ...], ...] = tuple((call,) for call in self._gold_calls(example))
        if not calls and (form or self._form).with_tools:
            calls = tool_turns(self.chart.tools)
        return Probe(kind or (form.name if form else "gold"), text, calls)

    def _gold_calls(self, example: Example) -> Sequence[ToolCall]:
        try:
            return self.host.env.gold_tool_calls(example)
        except Exception as error:
            self.chart.gold_error = describe_error(error)
            return ()

    async def _play_gold(self) -> None:
        for example in self.chart.sample:
            if (text := self._golds.get(example["id"])) is not None:
                self.chart.shots += await self._play(example, [self._gold_probe(example, text)])

    # Exploits

    def _exploits(self, example: Example) -> list[Probe]:
        gold = self._golds.get(example["id"])
        prompt = self.chart.system_prompt + "".join(str(m.get("content")) for m in example["prompt_messages"])
        probes = [Probe(kind, text) for kind, text in texts.exploits(example, gold, self._other_golds(example), prompt)]
        if self.chart.tools:
            probes.append(Probe("tool-spam", "Done.", tool_turns(self.chart.tools, times=3)))
        if self.chart.grouped and gold is not None:
            probes.insert(0, self._gold_probe(example, gold))
        return probes

    def _other_golds(self, example: Example) -> list[tuple[str, str]]:
        return [
            (truth, self._golds[other["id"]])
            for other in self.chart.examples[:400]
            if other["id"] != example["id"]
            and other["id"] in self._golds
            and (truth := texts.truth_text(other)) is not None
        ]

    async def _probe(self) -> None:
        for example in self.chart.sample[:PROBED]:
            self.chart.shots += await self._play(example, self._exploits(example))
            if perf_counter() - self._began > self.chart.pace.probe_seconds:
                self.chart.cut_short = True
                return

    async def _play(self, example: Example, probes: Sequence[Probe]) -> list[Shot]:
        if self.chart.grouped:
            company = [Probe("sibling", texts.REFUSAL)] if len(probes) == 1 else []
            return await play_group(self.host, example, [*probes, *company], self.settings)
        return await play_alone(self.host, example, probes, self.settings, self.chart.pace.at_once)

    # The same again, and differently

    async def _repeat(self) -> None:
        """The same answers on the same examples, twice more."""
        for example in self.chart.sample[:2]:
            probes = [p for p in self._exploits(example) if p.kind in ("gold", "garbage", "wrong")]
            gold = self._golds.get(example["id"])
            if gold is not None and not self.chart.grouped:
                probes.append(self._gold_probe(example, gold))
            runs = [await self._play(example, probes) for _ in range(3)]
            self.chart.repeats += [list(same) for same in zip(*runs, strict=False)]

    async def _rewrite_history(self) -> None:
        """Conversations whose earlier turns hold an answer: the new one is to be scored, not the old one."""
        talks = [e for e in self.chart.sample if any(m.get("role") == "assistant" for m in e["prompt_messages"])]
        for example in talks[:2] if not self.chart.grouped else ():
            gold = self._golds.get(example["id"])
            wrong = next(
                (text for truth, text in self._other_golds(example) if truth != texts.truth_text(example)), None
            )
            if gold is None or wrong is None:
                continue
            fresh = self._gold_probe(example, gold, kind="old-wrong")
            for old, probe in ((gold, Probe("old-gold", texts.GARBAGE)), (wrong, fresh)):
                turns = example["prompt_messages"]
                said: Any = [{"role": "user", "content": "Try once."}, {"role": "assistant", "content": old}]
                changed: Example = {**example, "prompt_messages": [*turns[:-1], *said, turns[-1]]}
                self.chart.history += await self._play(changed, [probe])

    async def _mingle(self) -> None:
        """The gold answers of two examples, alone and then with both rollouts open at once."""
        stateful = self.host.overrides("init_rollout") or self.chart.tools
        known = [example for example in self.chart.sample if example["id"] in self._golds]
        pair = [(example, self._gold_probe(example, self._golds[example["id"]])) for example in known]
        if self.chart.grouped or not stateful or len(pair) < 2:
            return
        pair = [pair[0], pair[-1]]
        alone = [(await run_rollout(self.host, e, probe.model(), self.settings)).reward for e, probe in pair]
        together = await self._together(pair, self.settings, scored=True)
        self.chart.mingled = [
            Mingled(example, before, rollout.reward)
            for (example, _), before, rollout in zip(pair, alone, together, strict=True)
        ]

    async def _crowd(self) -> None:
        """The gold answers of several examples, played and scored at once; a difference must show twice."""
        known = list({e["id"]: e for e in (*self.chart.sample, *self.chart.examples[:400])}.values())
        known = [example for example in known if example["id"] in self._golds][:CROWD]
        size = min(CROWD, getattr(self.host.env, "num_servers", CROWD))  # more would wait for one another's servers
        if len(known) < 2 or size < 2:
            return
        crowd = [known[at % len(known)] for at in range(size)]
        alone = {example["id"]: await self._gold_alone(example) for example in known}
        beside = f"with {size - 1} others scored at the same time"
        seen: list[Mingled] = []
        for _ in range(2):
            rollouts = await self._at_once(crowd)
            compared = [Mingled(e, alone[e["id"]], r.reward, beside) for e, r in zip(crowd, rollouts, strict=True)]
            seen = [each for each in compared if each.differs()]
            if not seen:
                return
        # Chance may do this as well: only an answer that earns the same again when alone can tell.
        for each in seen[:2]:
            if not replace(each, together=await self._gold_alone(each.example, again=True)).differs():
                self.chart.mingled.append(each)

    async def _gold_alone(self, example: Example, again: bool = False) -> float | None:
        """What the gold answer earns with nothing beside it, as seen before if it was."""
        if not again and not self.chart.grouped:
            for shot in self.chart.of("gold"):
                if shot.example["id"] == example["id"]:
                    return shot.total
        probe = self._gold_probe(example, self._golds[example["id"]])
        return (await run_rollout(self.host, example, probe.model(), self.settings)).reward

    async def _at_once(self, crowd: Sequence[Example]) -> list[Rollout]:
        """Open and play all at once; when all have been played, score all at once."""
        played = asyncio.Barrier(len(crowd))

        async def one(example: Example) -> Rollout:
            model = self._gold_probe(example, self._golds[example["id"]]).model()
            rollout = new_rollout(self.host, example, model, sample=0, attempt=0, split="eval", step=None)
            async with opened(self.host, rollout, self.settings) as ready:
                if ready:
                    await play(self.host, rollout, model, self.settings)
                await played.wait()
                if rollout.scorable:
                    await score(self.host, rollout, self.settings)
            finish(self.host.env, rollout, self.settings)
            return rollout

        return list(await asyncio.gather(*map(one, crowd)))

    async def _together(
        self, pair: Sequence[tuple[Example, Probe]], settings: RolloutSettings, *, scored: bool
    ) -> list[Rollout]:
        """Open all, then play one after the other."""
        place: dict[str, Any] = {"sample": 0, "attempt": 0, "split": "eval", "step": None}
        rollouts = [new_rollout(self.host, example, probe.model(), **place) for example, probe in pair]
        async with AsyncExitStack() as stack:
            ready = [await stack.enter_async_context(opened(self.host, rollout, settings)) for rollout in rollouts]
            for rollout, (_, probe) in zip(rollouts, pair, strict=True):
                if all(ready):
                    await play(self.host, rollout, probe.model(), settings)
                    if scored and rollout.scorable:
                        await score(self.host, rollout, settings)
        for rollout in rollouts:
            finish(self.host.env, rollout, settings)
        return rollouts

    async def _small_group(self) -> None:
        """A group of the size asked for, of two answers in turn."""
        if not self.chart.grouped:
            return
        example = self.chart.sample[0]
        answers = [self._golds.get(example["id"], "yes"), texts.GARBAGE]
        probes = [Probe("sibling", answers[index % 2]) for index in range(max(1, self.group_samples))]
        await self._play(example, probes)

    async def _ask_own_probe(self, rows: Sequence[Any]) -> None:
        try:
            said = await self.host.call("validate_probe", list(rows), deadline=self.chart.pace.reward_seconds)
        except Exception as error:
            said = {"ok": False, "summary": describe_error(error)}
        if said is not None and not isinstance(said, dict):
            said = {"ok": False, "summary": f"validate_probe returned {type(said).__name__}, not a dict or None"}
        self.chart.own_probe = said


def _left_behind(chart: Chart) -> list[str]:
    """Attributes of the environment that still hold ids of released rollouts."""
    if chart.env is None:
        return []
    ids = {call.rollout_id for call in chart.calls if call.rollout_id}
    kept = {**{k: v for k, v in vars(type(chart.env)).items() if not k.startswith("__")}, **vars(chart.env)}
    return [name for name, value in kept.items() if isinstance(value, dict | list | set) and _holds(value, ids, 0)]


def _holds(value: Any, ids: set[str], depth: int) -> bool:
    if isinstance(value, str):
        return value in ids
    if depth > 2 or not isinstance(value, dict | list | set | tuple):
        return False
    parts = [*value.keys(), *value.values()] if isinstance(value, dict) else list(value)
    return any(_holds(part, ids, depth + 1) for part in parts[:10_000])
