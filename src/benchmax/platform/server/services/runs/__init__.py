"""Runs: launching them and showing them.

`launch_checks` checks a launch before it is queued, `launch_sources` turns an environment's name or one dataset into
the four files of a run, `checkpoints` knows which checkpoint a name means, and `forks` starts a run from one.
`run_views`, `run_logs` and `rollout_tokens` turn rows of the store and files of a run's directory into the shapes of
the wire.
"""
