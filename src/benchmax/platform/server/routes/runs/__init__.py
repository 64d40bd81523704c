"""Routes about runs: launching, lists and details, rollouts, checkpoints, evaluations, the playground.

`runs` has the lists and one run, `run_pages` what its page shows besides charts, `rollout_filters` what requests have
in common, `evals` evaluations and scoring again. `rollout_stream` plays rollouts that belong to no run.
"""
