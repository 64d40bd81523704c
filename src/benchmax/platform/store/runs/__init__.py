"""Queries about runs and what they recorded: metrics, rollouts, events, evaluations.

`cursors` is how far a run's files were read, `ingested` forgets what is read again from them. `evals` holds evaluations
outside training, `comparisons` lays two beside each other; `run_summaries` and `rollout_search` serve lists.
"""
