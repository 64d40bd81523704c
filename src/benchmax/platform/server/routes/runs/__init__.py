"""Routes about runs: launching, lists and details, rollouts, checkpoints, evaluations, the playground.

`rollout_stream` plays rollouts that belong to no run.
"""
