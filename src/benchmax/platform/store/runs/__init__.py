"""Queries about runs and what they recorded: metrics, rollouts, events, evaluations.

`ingested` replaces what is read again from a run's directory; `run_summaries` and `rollout_search` serve lists.
"""
