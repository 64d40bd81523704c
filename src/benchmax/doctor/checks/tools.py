"""Can every listed tool be called, and does it return text, and not the answer?"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from difflib import get_close_matches
from statistics import fmean

from benchmax.doctor import probe_answers
from benchmax.doctor.evidence import Evidence, ToolTrial, total_of
from benchmax.doctor.findings import Finding, error, info, warning
from benchmax.doctor.quoting import advice, first_few, quote
from benchmax.doctor.registry import check, environment, tools, tried_tools
from benchmax.doctor.tool_arguments import properties_of, schema_of
from benchmax.envs.reward_helpers import content_text
from benchmax.envs.types import ToolDefinition, ToolResult
from benchmax.errors import DeadlineExceeded, ToolError, describe_failure
from benchmax.metrics import pays_more
from benchmax.rollouts.record import Rollout
from benchmax.rollouts.toolbox import tool_calls_of

_TEXTUAL = (str, bytes, ToolResult, dict, list, tuple, int, float)
"""What a tool may return: the model is shown it as text."""
_BROKEN = re.compile(
    r"\b(?:service|server|tool|temporarily|currently) (?:is )?(?:\w+ )?unavailable|try again later|connection refused|"
    r"internal (?:server )?error|not implemented|timed out|Traceback",
    re.IGNORECASE,
)
"""What tools say that catch every exception."""
_BUGS = (NameError, AttributeError, NotImplementedError, ImportError, AssertionError, RecursionError)


@check("tool-schema-invalid", "every tool is defined by a name and a valid schema", environment)
def tool_schema_invalid(evidence: Evidence) -> Iterator[Finding]:
    fix = "Return a list of ToolDefinition(name, description, input_schema) with JSON schemas from list_tools."
    if evidence.tools_error is not None:
        yield error("list_tools failed.", describe_failure(evidence.tools_error), advice(evidence.tools_error) or fix)
    for name, reason in evidence.bad_tools.items():
        if "tools are named" not in reason:
            yield error(f"The tool {name!r} cannot be used.", reason, fix)
    for tool in evidence.tools:
        if unknown := _required_unknown(tool):
            yield error(
                f"No call of {tool.name} can be right: its schema requires what it does not define.",
                f"required names {', '.join(unknown)}; the properties are {', '.join(properties_of(tool))}",
                f"Name in required only what is in properties{_meant(unknown[0], tool)}.",
            )


def _required_unknown(tool: ToolDefinition) -> list[str]:
    """The required arguments that the schema neither defines nor lets through."""
    schema, properties = schema_of(tool), properties_of(tool)
    open_ended = schema.get("additionalProperties") or schema.get("patternProperties")
    required = schema.get("required") if properties and not open_ended else ()
    return [str(name) for name in required or () if name not in properties]


def _meant(name: str, tool: ToolDefinition) -> str:
    near = get_close_matches(name, properties_of(tool), n=1)
    return f": {near[0]!r} instead of {name!r}" if near else ""


@check("duplicate-tool", "every tool has a name of its own", tools)
def duplicate_tool(evidence: Evidence) -> Iterator[Finding]:
    for name, reason in evidence.bad_tools.items():
        if "tools are named" in reason:
            yield error("Two tools have one name.", reason, f"Rename one of the tools named {name!r}.")


@check("tool-description-missing", "every tool says what it does", tools)
def tool_description_missing(evidence: Evidence) -> Iterator[Finding]:
    silent = [tool.name for tool in evidence.tools if not str(tool.description or "").strip()]
    if silent:
        yield warning(
            "Tools have no description.",
            f"no description: {', '.join(silent)}",
            "Say in one sentence what the tool does and when to use it; the model knows nothing else about it.",
        )


@check("tools-not-served", "run_tool serves every listed tool", tools)
def tools_not_served(evidence: Evidence) -> Iterator[Finding]:
    if not evidence.overrides("run_tool"):
        listed = f"list_tools returns {', '.join(tool.name for tool in evidence.tools)}"
        yield error("Tools are listed, but run_tool is not written.", listed, "Override run_tool.")
        return
    if unknown := sorted({trial.tool for trial in evidence.tool_trials if _unknown(trial)}):
        fix = "Use the same names in list_tools and run_tool."
        yield error("run_tool does not know tools that list_tools lists.", f"unknown: {', '.join(unknown)}", fix)
        return
    yield from _out_of_order(evidence)
    yield from _useless_to_gold(evidence)


def _out_of_order(evidence: Evidence) -> Iterator[Finding]:
    """Tools that say of themselves that they do not work, whatever they are asked."""
    said: dict[str, set[str]] = defaultdict(set)
    for trial in _trials(evidence):
        if trial.call is not None and trial.call.error is None:
            said[trial.tool].add(str(trial.call.value))
    for name, texts in said.items():
        if len(texts) == 1 and _BROKEN.search(text := texts.pop()):
            yield warning(
                f"{name} does not work.",
                f"whatever it was asked, it returned {quote(text)}",
                "Correct run_tool, and let it raise what it does not expect: a caught exception hides the cause.",
            )


def _unknown(trial: ToolTrial) -> bool:
    failure = trial.call.error if trial.call else None
    return isinstance(failure, KeyError) and failure.args == (trial.tool,)


@check("tool-raises", "no tool fails on arguments its schema allows", tried_tools)
def tool_raises(evidence: Evidence) -> Iterator[Finding]:
    for trial in _once_each(_trials(evidence)) if evidence.overrides("run_tool") else ():
        if trial.call is None:
            found = f"no valid arguments could be made from its schema: {trial.text}"
            yield info(f"{trial.tool} was not tried.", found, 'Add "examples" to its schema.')
            continue
        if not _fails(trial):
            continue
        failure = trial.call.error
        signature = isinstance(failure, TypeError) and "argument" in str(failure)
        slow = isinstance(failure, DeadlineExceeded)
        severe = signature or slow or isinstance(failure, _BUGS)
        ways = {_arguments(each) for each in _trials(evidence) if each.tool == trial.tool and _fails(each)}
        yield (error if severe else warning)(
            f"{trial.tool} {'takes too long' if slow else 'raised'}.",
            first_few([f"{trial.tool}({_arguments(trial)}) → {trial.call.message}"], 1, len(ways)),
            "Take the schema's properties as keyword arguments in run_tool."
            if signature
            else "Return a text that tells the model what was wrong, or raise ToolError with it.",
        )


@check("tool-returns-no-text", "every tool returns text", tried_tools)
def tool_returns_no_text(evidence: Evidence) -> Iterator[Finding]:
    trials = [(each, each.call.value) for each in _trials(evidence) if each.call and not each.call.error]
    odd = [(trial, value) for trial, value in trials if not isinstance(value, _TEXTUAL)]
    for trial, value in {trial.tool: (trial, value) for trial, value in reversed(odd)}.values():
        yield (warning if value is None else error)(
            f"{trial.tool} returns {type(value).__name__}, not text.",
            f"{trial.tool}({_arguments(trial)}) → {type(value).__name__}; the model is shown {trial.text!r}",
            "Return a str on every path of run_tool.",
        )


def _calls_in(rollout: Rollout) -> Iterator[tuple[str, str, bool, bool]]:
    """The tool, the call in words, and whether it worked and returned nothing, for each call of a rollout.

    Events of one turn may stand in another order than its results; by name they agree.
    """
    asked = {call.id: call.arguments for message in rollout.completion for call in tool_calls_of(message)}
    events = defaultdict(list)
    for event in rollout.tool_events:
        events[event.name].append(event.ok)
    for message in rollout.completion:
        name = str(message.get("name"))
        if message["role"] == "tool" and events[name]:
            result = content_text(message.get("content"))
            words = f"{name}({quote(asked.get(message.get('tool_call_id'), ''))}) → {quote(result)}"
            yield name, words, events[name].pop(0), not result.strip()


def _useless_to_gold(evidence: Evidence) -> Iterator[Finding]:
    """Tools whose calls in the environment's own solutions mostly end in an error, or return nothing.

    Calls that the doctor makes up prove nothing when they fail.
    """
    golds = [each for each in evidence.answers if each.kind == "gold"]
    less = [each for each in evidence.of("unfinished") if each.text != probe_answers.GARBAGE]
    silence_works = any(pays_more(evidence.gold_for([each]) or 0.0, total_of(each)) for each in less)
    made: dict[str, list[tuple[str, bool]]] = defaultdict(list)
    for answer in golds if evidence.overrides("gold_tool_calls") else evidence.demonstrated:
        for name, words, ok, silent in _calls_in(answer.rollout):
            # Many a command says nothing when it has done its work, without which the answer earns less.
            made[name].append((words, not ok or (silent and not silence_works)))
    for name, calls in made.items():
        failed = [words for words, fails in calls if fails]
        if len(failed) * 2 > len(calls):
            yield warning(
                f"{name} gives the solution itself nothing to work with.",
                f"{len(failed)} of its {len(calls)} calls in gold answers came back as an error or empty: {failed[0]}",
                "Correct run_tool, or the calls of gold_tool_calls and demonstrate; a model that calls it learns that "
                "tools are useless.",
            )


@check("leaks-ground-truth-tool", "no tool reveals the answer to anyone who calls it", tried_tools)
def leaks_ground_truth_tool(evidence: Evidence) -> Iterator[Finding]:
    for name in dict.fromkeys(trial.tool for trial in evidence.tool_trials):
        seen = [
            (trial, truth)
            for trial in evidence.tool_trials
            if trial.tool == name and (truth := evidence.truth(trial.example) or _wanted(evidence, trial))
        ]
        leaked = [probe_answers.mentions(trial.text, truth) and not _given(trial, truth) for trial, truth in seen]
        truths = [truth for _, truth in seen]
        if len(set(truths)) < 2 or fmean(leaked) < 0.5:
            continue
        if fmean(probe_answers.mentions(trial.text, truths[i - 1]) for i, (trial, _) in enumerate(seen)) >= 0.5:
            continue  # it lists everything, and so reveals nothing
        trial, truth = seen[leaked.index(True)]
        outright = trial.text.strip().lower() == truth.strip().lower() or probe_answers.labelled(trial.text, truth)
        yield (error if outright else warning)(
            f"{name} reveals the ground truth whatever it is asked.",
            f"{name}({_arguments(trial)}) → {trial.text[:200]!r}, and the ground truth is {truth!r}",
            "Keep the answer out of what tools can reach. If the tool returns a text to find it in, all is well.",
        )


def _wanted(evidence: Evidence, trial: ToolTrial) -> str | None:
    """An argument of this tool in a solution that the prompt does not contain: the tool should not reveal it either."""
    turns = [turn for turn in evidence.gold.found.get(trial.example["id"], ()) if isinstance(turn, tuple)]
    calls = [call for turn in turns for call in turn if call.name == trial.tool]
    given = [value for call in calls for value in call.arguments_dict().values()]
    prompt = evidence.prompt(trial.example)
    texts = [str(value) for value in given if isinstance(value, str | int | float) and not isinstance(value, bool)]
    return next((text for text in texts if not probe_answers.mentions(prompt, text)), None)


def _given(trial: ToolTrial, truth: str) -> bool:
    return any(probe_answers.mentions(str(value), truth) for value in trial.arguments.values())


def _trials(evidence: Evidence) -> list[ToolTrial]:
    return [*evidence.tool_trials, *evidence.edge_trials]


def _once_each(trials: list[ToolTrial]) -> list[ToolTrial]:
    """One trial of each tool, a failed one if there is one."""
    best: dict[str, ToolTrial] = {}
    for trial in trials:
        held = best.get(trial.tool)
        if held is None or (held.call and not _fails(held) and _fails(trial)):
            best[trial.tool] = trial
    return list(best.values())


def _fails(trial: ToolTrial) -> bool:
    """Whether the tool failed, instead of telling the model what was wrong."""
    failure = trial.call.error if trial.call else None
    return failure is not None and not isinstance(failure, ToolError) and not _unknown(trial)


def _arguments(trial: ToolTrial) -> str:
    return ", ".join(f"{name}={_short(value)}" for name, value in trial.arguments.items())[:200]


def _short(value: object) -> str:
    if isinstance(value, str) and len(value) > 100:
        return f"{value[:10]!r}… ({len(value):,} characters)"
    return repr(value)
