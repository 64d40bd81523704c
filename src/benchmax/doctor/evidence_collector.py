"""Collects the evidence: plays an environment's whole life on real rows, then everything a model might try.

Nothing is concluded here; checks do that. The order goes from cheap to costly, and an environment that hangs is left
alone after its first deadline.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from time import perf_counter
from typing import Any

from benchmax.doctor import probe_answers
from benchmax.doctor.evidence import Evidence, Interference, ToolTrial, total_of
from benchmax.doctor.gold.answer_search import Gold, GoldFinder
from benchmax.doctor.gold.demonstrations import SCRIPT, SEARCHED, Demonstrator
from benchmax.doctor.gold.ground_truths import question
from benchmax.doctor.lazy_strategies import lazy_answers, play_suspects
from benchmax.doctor.probe_player import (
    PlayedAnswer,
    Probe,
    ProbePlayer,
    edge_calls,
    half_probes,
    in_turns,
    tool_turns,
)
from benchmax.doctor.recording_host import RecordingHost
from benchmax.envs.base_env import overrides
from benchmax.envs.types import Example, ToolDefinition
from benchmax.errors import DeadlineExceeded, EnvDefinitionError, RewardError, describe_failure
from benchmax.models.base import Sampling
from benchmax.rollouts.play import new_rollout, open_rollout, play, run_rollout
from benchmax.rollouts.record import Rollout
from benchmax.rollouts.scoring import finish, score
from benchmax.rollouts.settings import RolloutSettings
from benchmax.rollouts.toolbox import Toolbox

GOLD_SHARE = 1 / 3
"""The share of the time for probes that the search for the gold answer may take."""
GOLD_EXAMPLES = 400
"""Examples whose gold answers are computed."""
EXPLOIT_EXAMPLES = 4
"""Examples on which exploits are tried; the gold answer is tried on all."""
ODD_EXAMPLES = 2
"""Examples on which odd and half-right answers are tried."""
SPAM_CALLS = 12
"""Calls without an answer, at least; each tool is called three times or more."""
MOST_UNFINISHED = 8
"""Ways to leave out one tool call of the gold answer."""
GOLDS_AT_ONCE = 8
"""Gold answers scored at the same time."""
CROSSTALK_MARKER = "benchmax-marker-7f3a91"


class EvidenceCollector:
    """Examines one environment on its host."""

    def __init__(self, evidence: Evidence, host: RecordingHost, budgets: dict[str, Any], group_samples: int) -> None:
        pace = evidence.pace
        self.evidence, self.host, self.group_samples = evidence, host, group_samples
        self.settings = RolloutSettings(
            **budgets,
            init_seconds=pace.init_seconds,
            tool_seconds=pace.tool_seconds,
            reward_seconds=pace.reward_seconds,
            release_seconds=pace.release_seconds,
            sampling=Sampling(max_tokens=None),
        )
        self.unlimited = replace(self.settings, max_turns=32, max_tool_calls=512)
        """Settings that let a rollout reach every tool."""
        self.player = ProbePlayer(host, self.settings, pace.at_once)
        self.gold = Gold()
        self.tools: list[ToolDefinition] = []
        """Those that answer."""
        self._golds: dict[str, str] = {}
        """The gold answers' texts, by the id of the example."""
        self._began = perf_counter()

    async def run(self, rows: Sequence[Any]) -> None:
        evidence = self.evidence
        evidence.env, evidence.grouped = self.host.env, self.host.overrides("compute_group_reward")
        try:
            await self._read_tools()
            if evidence.sample and evidence.tools_error is None and not evidence.bad_tools:
                await self._play_everything()
            if overrides(self.host.env, "validate_probe"):
                await self._ask_own_probe(rows)
        finally:
            evidence.calls, evidence.blocking = self.host.calls, self.host.blocking_hooks
            evidence.left_behind = evidence.held_ids()

    async def _play_everything(self) -> None:
        if not await self._first_answer_works():
            return
        await self._try_tools()
        await self._find_gold()
        if not self.evidence.grouped:
            await self._play_gold()
            await self._play_demonstrations()
        for step in (
            self._try_edges, self._probe, self._probe_odd_answers, self._stop_early, self._repeat,
            self._rewrite_history, self._play_two_open, self._score_at_once, self._find_crosstalk, self._small_group,
        ):  # fmt: skip
            if self._is_late():
                return
            await step()

    def _is_late(self) -> bool:
        return perf_counter() - self._began > self.evidence.pace.probe_seconds

    # Tools

    async def _read_tools(self) -> None:
        evidence = self.evidence
        try:
            listed = list(await self.host.call("list_tools", deadline=evidence.pace.init_seconds) or ())
        except Exception as error:
            evidence.tools_error = error
            return
        for tool in listed:
            try:
                evidence.tools += Toolbox([tool]).tools
            except EnvDefinitionError as error:
                evidence.bad_tools[str(getattr(tool, "name", tool))[:80]] = str(error)
        for name, count in Counter(tool.name for tool in evidence.tools).items():
            if count > 1:
                evidence.bad_tools[name] = f"{count} tools are named {name!r}."

    async def _try_tools(self) -> None:
        """Call each tool with made-up arguments on a few examples; where one hangs, no tool is called again."""
        self.tools = self.evidence.tools
        for example in self.evidence.sample[:3]:
            if not self.tools:
                return
            probe = Probe("tools", "Done.", tool_turns(self.evidence.tools))
            rollout = await run_rollout(self.host, example, probe.model(), self.unlimited)
            shown = {m.get("tool_call_id"): str(m.get("content")) for m in rollout.completion if m["role"] == "tool"}
            for call in (call for turn in probe.turns for call in turn):
                seen = (c for c in self.host.calls if c.rollout_id == rollout.id and c.key == call.name)
                trial = ToolTrial(call.name, call.arguments_dict(), example, shown.get(call.id, ""), next(seen, None))
                self.evidence.tool_trials.append(trial)
            if any(isinstance(call.error, DeadlineExceeded) for call in self.host.calls):
                self.tools = []

    async def _try_edges(self) -> None:
        """Call each tool with the unusual values its schema allows, and with those of the row, in one rollout."""
        example = self.evidence.sample[0]
        calls = edge_calls(self.tools, example)
        if not calls:
            return
        probe = Probe("edges", "Done.", in_turns(calls))
        rollout = await run_rollout(self.host, example, probe.model(), self.unlimited)
        made = [c for c in self.host.calls if c.rollout_id == rollout.id and c.hook == "run_tool"]
        for call, seen in zip(calls, made, strict=False):  # both in the order of the calls
            self.evidence.edge_trials.append(ToolTrial(call.name, call.arguments_dict(), example, seen.message, seen))

    async def _find_crosstalk(self) -> None:
        """Write a marker with every tool of one rollout; no tool of another rollout may return it."""
        evidence = self.evidence
        if not self.tools:
            return
        example = evidence.sample[0]
        words = (CROSSTALK_MARKER, "test")
        writer, reader = (Probe("tools", "Done.", tool_turns(self.tools, word, 2)) for word in words)
        _, read = await self._open_together([(example, writer), (example, reader)], self.unlimited, scored=False)
        for message in read.completion:
            if message["role"] == "tool" and CROSSTALK_MARKER in str(message.get("content")):
                evidence.crosstalk.append(f"{message.get('name')}: {str(message['content'])[:200]}")

    # Gold

    async def _first_answer_works(self) -> bool:
        """Play one plain answer first: an environment that hangs or cannot start is not worth a hundred deadlines."""
        answers = await self.player.play(self.evidence.sample[0], [Probe("first", probe_answers.GARBAGE)])
        self.evidence.answers += answers
        hopeless = (DeadlineExceeded, RewardError)  # the second: no answer can be scored, whatever it is
        return bool(answers) and not any(isinstance(call.error, hopeless) for call in self.host.calls)

    async def _find_gold(self) -> None:
        """Find the way of answering that earns most, and write the answers of all examples that way."""
        finder = GoldFinder(self.player, self.tools, self.evidence.pace.probe_seconds * GOLD_SHARE)
        self.gold = self.evidence.gold = await finder.find(self.evidence.sample)
        if not self.gold.trusted and not self.evidence.grouped and await self._learn_solutions():
            return
        for example in (*self.evidence.examples[:GOLD_EXAMPLES], *self.evidence.sample):
            if (text := self.gold.text(example)) is not None:
                self._golds[example["id"]] = text

    def _with_gold(self, examples: Iterable[Example]) -> list[Example]:
        return [example for example in examples if example["id"] in self._golds]

    def _gold_probe(self, example: Example, kind: str = "gold") -> Probe:
        """The gold answer of an example that has one."""
        return self.gold.probe(example, self._golds[example["id"]], kind=kind)

    async def _learn_solutions(self) -> bool:
        """Where no text earns, what `demonstrate` shows or a search for tool calls finds may; each for its own row."""
        seconds = self.evidence.pace.probe_seconds * GOLD_SHARE
        demonstrator = Demonstrator(self.player, self.gold, self.tools and self.evidence.tools, seconds)
        wanted = SCRIPT if demonstrator.scripted else SEARCHED
        known = any(self.gold.calls_of(example) for example in self.evidence.sample)
        for example in self.evidence.sample if not known else ():
            found = await demonstrator.solve(example)
            if found is not None and found.source == wanted and isinstance(found.turns[-1], str):
                self._golds[example["id"]] = self.gold.learn(example, found.turns, found.reward)
                if wanted == SEARCHED:
                    await self._compare_alone(example, found.reward)
        return bool(self._golds)

    async def _compare_alone(self, example: Example, earned: float) -> None:
        """What was earned while others were tried at the same time must be earned alone, too."""
        beside = "with others tried at the same time"
        twice = [Interference(example, await self._gold_alone(example, again=True), earned, beside) for _ in range(2)]
        if all(each.differs() for each in twice) and twice[0].alone == twice[1].alone:
            self.evidence.interference.append(twice[0])

    async def _play_gold(self) -> None:
        for example in self._with_gold(self.evidence.sample):
            probes, text = [self._gold_probe(example)], self._golds[example["id"]]
            if (twin := self.evidence.twin(example)) is not None and self._golds.get(twin["id"], text) != text:
                probes.append(self._gold_probe(twin, "twin"))
            self.evidence.answers += await self.player.play(example, probes)

    async def _play_demonstrations(self) -> None:
        """Play the environment's own solutions; they count as gold answers."""
        demonstrator = Demonstrator(self.player, self.gold)
        for example in self.evidence.sample[:EXPLOIT_EXAMPLES] if demonstrator.scripted else ():
            if (played := await demonstrator.perform(example)) is not None:
                rollout, turns = played
                text = turns[-1] if turns and isinstance(turns[-1], str) else ""
                self.evidence.demonstrated.append(PlayedAnswer("gold", text, example, rollout))
        self.evidence.demonstrate_error = demonstrator.error
        self.evidence.answers += self.evidence.demonstrated

    # Exploits

    def _exploits(self, example: Example) -> list[Probe]:
        gold = self._golds.get(example["id"])
        prompt = self.evidence.prompt(example)
        truth, others = self.evidence.truth(example), self._other_golds(example)
        texts = [*probe_answers.exploits(example, truth, gold, others, prompt)]
        texts += lazy_answers(example, self.gold, self.evidence.examples)
        probes = [
            self.gold.probe(example, text, kind=kind) if kind in probe_answers.STILL_GOLD else Probe(kind, text)
            for kind, text in texts
        ]
        if self.tools:
            times = max(3, SPAM_CALLS // len(self.tools))
            for asked in (None, question(example)):
                probes.append(Probe("tool-spam", "Done.", tool_turns(self.tools, times=times, question=asked)))
        if self.evidence.grouped and gold is not None:
            probes.insert(0, self._gold_probe(example))
        return probes

    def _other_golds(self, example: Example) -> list[tuple[str, str]]:
        return [
            (truth, self._golds[other["id"]])
            for other in self._with_gold(self.evidence.examples[:GOLD_EXAMPLES])
            if other["id"] != example["id"] and (truth := self.evidence.truth(other)) is not None
        ]

    async def _probe(self) -> None:
        for example in self.evidence.sample[:EXPLOIT_EXAMPLES]:
            self.evidence.answers += await self.player.play(example, self._exploits(example))
            if self._is_late():
                return
        if not self.evidence.grouped:
            answers, examples = self.evidence.scored, self.evidence.examples
            self.evidence.answers += await play_suspects(self.player, self.gold, answers, examples)

    async def _probe_odd_answers(self) -> None:
        """Values that are hard to read, and answers that are right in part."""
        for example in self.evidence.sample[:ODD_EXAMPLES]:
            gold = self._golds.get(example["id"])
            probes = [Probe(*each) for each in probe_answers.odd_answers(self.evidence.truth(example), gold)]
            if gold is not None and self.evidence.grouped:
                probes.insert(0, self._gold_probe(example))
            elif gold is not None:
                own, *golds = map(self._gold_probe, (example, *self._with_gold(self.evidence.sample)))
                golds.sort(key=lambda other: other.tools != own.tools)
                probes += next((list(half_probes(own, other)) for other in golds if other != own), [])
            self.evidence.answers += await self.player.play(example, probes)

    async def _stop_early(self) -> None:
        """The gold answer without one of its tool calls, or without its text: components that look at different parts
        differ here alone."""
        tried = self.evidence.sample[:EXPLOIT_EXAMPLES] if not self.evidence.grouped else ()
        for example in self._with_gold(tried):
            gold = self._gold_probe(example)
            if turns := gold.turns:
                less = [turns[:at] + turns[at + 1 :] for at in range(min(len(turns), MOST_UNFINISHED))]
                probes = [Probe("unfinished", gold.text, each) for each in less]
                probes.append(Probe("unfinished", probe_answers.GARBAGE, turns))
                self.evidence.answers += await self.player.play(example, probes)
                return

    # The same again, and differently

    async def _repeat(self) -> None:
        """Play the same answers on the same examples three times."""
        for example in self.evidence.sample[:2]:
            probes = [p for p in self._exploits(example) if p.kind in ("gold", "garbage", "wrong")]
            gold = self._golds.get(example["id"])
            if gold is not None and not self.evidence.grouped:
                probes.append(self._gold_probe(example))
            runs = [await self.player.play(example, probes) for _ in range(3)]
            repeats = [list(same) for same in zip(*runs, strict=False)]
            # A reward that remembers what was done pays nonsense later, which it did not pay at the beginning.
            begun = [] if self.evidence.grouped else self.evidence.of("first")
            for same in repeats:
                same[:0] = [e for e in begun if e.example["id"] == example["id"] and e.text == same[0].text]
            # A reward that remembers what was said pays most for the first time.
            first = self.gold.first.get(example["id"])
            if first and first.text == gold and total_of(first) > max(each.total or 0.0 for each in runs[-1]):
                repeats[-1].insert(0, first)
            self.evidence.repeats += repeats

    async def _rewrite_history(self) -> None:
        """Play conversations whose earlier turns hold an answer: the new answer must be scored, not the old one."""
        talks = [e for e in self.evidence.sample if any(m.get("role") == "assistant" for m in e["prompt_messages"])]
        for example in talks[:2] if not self.evidence.grouped else ():
            nonsense = Probe("old-blank", probe_answers.GARBAGE)
            self.evidence.history += await self.player.play(probe_answers.without_answers(example), [nonsense])
            gold = self._golds.get(example["id"])
            others = (text for truth, text in self._other_golds(example) if truth != self.evidence.truth(example))
            wrong = next(others, None)
            if gold is None or wrong is None:
                continue
            fresh = self._gold_probe(example, "old-wrong")
            for old, probe in ((gold, Probe("old-gold", probe_answers.GARBAGE)), (wrong, fresh)):
                turns = example["prompt_messages"]
                added: Any = [{"role": "user", "content": "Try once."}, {"role": "assistant", "content": old}]
                changed: Example = {**example, "prompt_messages": [*turns[:-1], *added, turns[-1]]}
                self.evidence.history += await self.player.play(changed, [probe])

    async def _play_two_open(self) -> None:
        """Play the gold answers of two examples alone, and then with both rollouts open at once."""
        stateful = self.host.overrides("init_rollout") or self.evidence.tools
        known = self._with_gold(self.evidence.sample)
        if self.evidence.grouped or not stateful or len(known) < 2:
            return
        pair = known[0], known[-1]
        alone = [await self._gold_alone(example, again=True) for example in pair]
        together = await self._open_together([(e, self._gold_probe(e)) for e in pair], self.settings, scored=True)
        self.evidence.interference += [
            Interference(example, before, rollout.reward)
            for example, before, rollout in zip(pair, alone, together, strict=True)
        ]

    async def _score_at_once(self) -> None:
        """Play and score the gold answers of several examples at once; a difference must show twice."""
        examples = self._with_gold((*self.evidence.sample, *self.evidence.examples[:GOLD_EXAMPLES]))
        known = list({each["id"]: each for each in examples}.values())[:GOLDS_AT_ONCE]
        size = min(GOLDS_AT_ONCE, getattr(self.host.env, "num_servers", GOLDS_AT_ONCE))  # more would wait for servers
        if len(known) < 2 or size < 2:
            return
        chosen = [known[at % len(known)] for at in range(size)]
        alone = {example["id"]: await self._gold_alone(example) for example in known}
        beside = f"with {size - 1} others scored at the same time"
        seen: list[Interference] = []
        for _ in range(2):
            rollouts = await self._all_at_once(chosen)
            pairs = zip(chosen, rollouts, strict=True)
            compared = (Interference(each, alone[each["id"]], done.reward, beside) for each, done in pairs)
            seen = [each for each in compared if each.differs()]
            if not seen:
                return
        # This may be chance: only an answer that earns the same again when alone shows a real difference.
        for each in seen[:2]:
            if not replace(each, together=await self._gold_alone(each.example, again=True)).differs():
                self.evidence.interference.append(each)

    async def _gold_alone(self, example: Example, again: bool = False) -> float | None:
        """What the gold answer earns while no other rollout is open; from an earlier answer if there is one."""
        if not again and not self.evidence.grouped:
            for answer in self.evidence.of("gold"):
                if answer.example["id"] == example["id"]:
                    return answer.total
        return (await run_rollout(self.host, example, self._gold_probe(example).model(), self.settings)).reward

    async def _all_at_once(self, examples: Sequence[Example]) -> list[Rollout]:
        """Open and play all at once; when all have been played, score all at once."""
        played = asyncio.Barrier(len(examples))

        async def one(example: Example) -> Rollout:
            model = self._gold_probe(example).model()
            rollout = new_rollout(self.host, example, model)
            async with open_rollout(self.host, rollout, self.settings) as ready:
                if ready:
                    await play(self.host, rollout, model, self.settings)
                await played.wait()
                if rollout.scorable:
                    await score(self.host, rollout, self.settings)
            finish(self.host, rollout, self.settings)
            return rollout

        return list(await asyncio.gather(*map(one, examples)))

    async def _open_together(
        self, pair: Sequence[tuple[Example, Probe]], settings: RolloutSettings, *, scored: bool
    ) -> list[Rollout]:
        """Open all rollouts, then play one after the other."""
        rollouts = [new_rollout(self.host, example, probe.model()) for example, probe in pair]
        async with AsyncExitStack() as stack:
            ready = [await stack.enter_async_context(open_rollout(self.host, each, settings)) for each in rollouts]
            for rollout, (_, probe) in zip(rollouts, pair, strict=True):
                if all(ready):
                    await play(self.host, rollout, probe.model(), settings)
                    if scored and rollout.scorable:
                        await score(self.host, rollout, settings)
        for rollout in rollouts:
            finish(self.host, rollout, settings)
        return rollouts

    async def _small_group(self) -> None:
        """Play a group of the requested size, of two answers in turn, and one in which each answer stands twice."""
        if not self.evidence.grouped:
            return
        example = self.evidence.sample[0]
        answers = [self._golds.get(example["id"], "yes"), probe_answers.GARBAGE]
        probes = [Probe("sibling", answers[index % 2]) for index in range(max(1, self.group_samples))]
        await self.player.play(example, probes)
        twice = [Probe("sibling", text) for text in answers for _ in range(2)]
        self.evidence.siblings = await self.player.play(example, twice)

    async def _ask_own_probe(self, rows: Sequence[Any]) -> None:
        try:
            result = await self.host.call("validate_probe", list(rows), deadline=self.evidence.pace.reward_seconds)
        except Exception as error:
            result = {"ok": False, "summary": describe_failure(error)}
        if result is not None and not isinstance(result, dict):
            result = {"ok": False, "summary": f"validate_probe returned {type(result).__name__}, not a dict or None"}
        self.evidence.own_probe = result
