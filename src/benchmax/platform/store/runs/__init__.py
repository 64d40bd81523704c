"""Queries about runs and what they recorded: metrics, rollouts, events, evaluations.

`ingested` is how far a run's files were read, and forgets what is read again from them. `evals` holds evaluations
outside training; `run_summaries` and `rollout_search` serve lists.
"""
