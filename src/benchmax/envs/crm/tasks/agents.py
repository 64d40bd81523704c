"""Tasks about agents and regions: transfers, handle times, routing, and where cases are closed fastest."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from fractions import Fraction
from random import Random
from typing import Any

from benchmax.envs.crm.company import Company
from benchmax.envs.crm.company.records import ASSIGNED
from benchmax.envs.crm.company.words import ISSUES
from benchmax.envs.crm.org.base import Row
from benchmax.envs.crm.tasks.kinds import Drawn, call, kind
from benchmax.envs.crm.tasks.periods import Period, draw_period, find_dates
from benchmax.envs.generated_tasks import Steps, single_best

_LEAST_GAP = 1
"""Two averages, in seconds, must differ by more than this: tools round them."""


def _assignments(company: Company, period: Period) -> list[Row]:
    return [
        row for row in company.table("CaseHistory__c")
        if row["Field__c"] == ASSIGNED and period.holds(row["CreatedDate"])
    ]  # fmt: skip


def _handled(company: Company, period: Period) -> Counter[str]:
    """How many cases each agent was given."""
    return Counter(
        agent for agent, _ in {(row["NewValue__c"], row["CaseId__c"]) for row in _assignments(company, period)}
    )


def _extreme(rng: Random) -> tuple[str, Callable[..., float]]:
    return rng.choice([("max", max), ("min", min)])


def _best_id(values: Mapping[str, float], extreme: str) -> Steps:
    return (yield from call(f"find_id_with_{extreme}_value", values_by_id=values))[0]


# Transfers


def _draw_transfers(company: Company, rng: Random, hard: bool) -> Drawn:
    period = draw_period(rng, months=rng.choice([1, 3]), hard=hard)
    extreme, best = _extreme(rng)
    counts = Counter(row["OldValue__c"] for row in _assignments(company, period) if row["OldValue__c"])
    among, facts = "", {"extreme": extreme, **period.facts}
    if hard:
        least = facts["cases"] = rng.randrange(2, 8)
        handled = _handled(company, period)
        counts = Counter({agent: count for agent, count in counts.items() if handled[agent] > least})
        among = f" Count only agents who were assigned more than {least} cases in that time."
    answer = single_best(counts, best)
    most = "most" if extreme == "max" else "fewest (but at least one)"
    query = f"Which agent transferred the {most} cases to others {period.words}? Give the Id.{among}"
    return Drawn(query, answer, facts, period.required)


@kind("transfer_count", _draw_transfers)
def _find_transfers(facts: Mapping[str, Any]) -> Steps:
    start, end = yield from find_dates(facts)
    among: dict[str, Any] = {}
    if "cases" in facts:
        among["qualified_agent_ids"] = yield from _busy_agents(start, end, facts["cases"])
    counts = yield from call("get_agent_transferred_cases_by_period", start_date=start, end_date=end, **among)
    return (yield from _best_id(counts, facts["extreme"]))


def _busy_agents(start: str, end: str, cases: int) -> Steps:
    handled = yield from call("get_agent_handled_cases_by_period", start_date=start, end_date=end)
    return (yield from call("get_qualified_agent_ids_by_case_count", agent_handled_cases=handled, n_cases=cases))


# Times


def _averages(cases: Iterable[Row], group: Callable[[Row], str]) -> dict[str, Fraction]:
    """Seconds from creation to closure, exactly."""
    times: dict[str, list[int]] = defaultdict(list)
    for case in cases:
        created, closed = (datetime.fromisoformat(case[name]) for name in ("CreatedDate", "ClosedDate"))
        times[group(case)].append(int((closed - created).total_seconds()))
    return {name: Fraction(sum(each), len(each)) for name, each in times.items()}


def _clear(values: Mapping[str, Fraction], best: Callable[..., Any]) -> str | None:
    """The one with the best average; None when another is too close to tell them apart."""
    if len(values) < 2:
        return None
    first, second = sorted(values, key=lambda name: values[name], reverse=best is max)[:2]
    return first if abs(values[first] - values[second]) > _LEAST_GAP else None


def _draw_handle_time(company: Company, rng: Random, hard: bool) -> Drawn:
    period = draw_period(rng)
    extreme, best = _extreme(rng)
    least = rng.randrange(1, 4)
    times_assigned = Counter(row["CaseId__c"] for row in _assignments(company, period))
    handled = _handled(company, period)
    cases = (
        case for case in company.table("Case")
        if case["IsClosed"] and times_assigned[case["Id"]] == 1 and handled[case["OwnerId"]] > least
    )  # fmt: skip
    answer = _clear(_averages(cases, lambda case: str(case["OwnerId"])), best)
    shortest = "longest" if extreme == "max" else "shortest"
    query = (
        f"Which agent has the {shortest} average time from creation to closure of closed cases that were assigned "
        f"{period.words} and never transferred? Count only agents who were assigned more than {least} cases in that "
        "time. Give the Id."
    )
    return Drawn(query, answer, {"extreme": extreme, "cases": least, **period.facts})


@kind("handle_time", _draw_handle_time)
def _find_handle_time(facts: Mapping[str, Any]) -> Steps:
    start, end = yield from find_dates(facts)
    agents = yield from _busy_agents(start, end, facts["cases"])
    ids = yield from call("get_non_transferred_case_ids", start_date=start, end_date=end)
    cases = yield from call("get_cases", case_ids=ids, agent_ids=agents, statuses=["Closed"])
    times = yield from call("calculate_average_handle_time", cases=cases)
    return (yield from _best_id(times, facts["extreme"]))


def _draw_region(company: Company, rng: Random, hard: bool) -> Drawn:
    period = draw_period(rng)  # a month: the tools carry its cases from one to the next
    extreme, best = _extreme(rng)
    accounts = company.by_id("Account")
    cases = (case for case in company.table("Case") if case["IsClosed"] and period.holds(case["CreatedDate"]))
    answer = _clear(_averages(cases, lambda case: str(accounts[case["AccountId"]]["ShippingState"])), best)
    fastest = "longest" if extreme == "max" else "shortest"
    query = (
        f"In which state is the average time to closure the {fastest}, of closed cases created {period.words}? "
        "Give its two letters."
    )
    return Drawn(query, answer, {"extreme": extreme, **period.facts})


@kind("best_region_identification", _draw_region)
def _find_region(facts: Mapping[str, Any]) -> Steps:
    start, end = yield from find_dates(facts)
    cases = yield from call("get_cases", start_date=start, end_date=end, statuses=["Closed"])
    cases = yield from call("get_shipping_state", cases=cases)
    times = yield from call("calculate_region_average_closure_times", cases=cases)
    return (yield from _best_id(times, facts["extreme"]))


# Routing


def _draw_routing(company: Company, rng: Random, hard: bool) -> Drawn:
    return (_draw_workload if rng.randrange(3) == 0 else _draw_experience)(company, rng, hard)


def _draw_experience(company: Company, rng: Random, hard: bool) -> Drawn:
    period = draw_period(rng, months=3, hard=hard)
    issue = rng.choice(company.table("Issue__c"))
    cases = (
        case for case in company.table("Case")
        if case["IsClosed"] and case["IssueId__c"] == issue["Id"] and period.holds(case["CreatedDate"])
    )  # fmt: skip
    answer = single_best(Counter(case["OwnerId"] for case in cases))
    query = (
        f'A new case says: "{ISSUES[issue["Name"]]}" ({issue["Name"]}). Route it to the agent who owns most closed '
        f"cases about this issue that were created {period.words}. Give the Id."
    )
    return Drawn(query, answer, {"issue": issue["Name"], **period.facts}, period.required)


def _draw_workload(company: Company, rng: Random, hard: bool) -> Drawn:
    period = draw_period(rng)
    owners = Counter(case["OwnerId"] for case in company.table("Case") if period.holds(case["CreatedDate"]))
    answer = single_best(owners, min)
    query = (
        "Route a new case to the agent who owns the fewest (but at least one) of the cases that were created "
        f"{period.words}. Give the Id."
    )
    return Drawn(query, answer, period.facts)


@kind("case_routing", _draw_routing)
def _find_agent(facts: Mapping[str, Any]) -> Steps:
    start, end = yield from find_dates(facts)
    if "issue" not in facts:
        cases = yield from call("get_cases", start_date=start, end_date=end)
        return (yield from call("get_agents_with_min_cases", subset_cases=cases))[0]
    issues = yield from call("get_issues")
    issue = next(each["Id"] for each in issues if each["Name"] == facts["issue"])
    cases = yield from call("get_cases", start_date=start, end_date=end, issue_ids=[issue], statuses=["Closed"])
    return (yield from call("get_agents_with_max_cases", subset_cases=cases))[0]
