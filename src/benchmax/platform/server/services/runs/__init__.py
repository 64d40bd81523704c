"""Runs: launching them and showing them.

`launch` checks a launch before it is queued, `launch_sources` turns an environment's name or one dataset into the four
files of a run, `forks` starts a run from another's checkpoint. `run_views`, `rollout_views` and `run_logs` turn rows
of the store and files of a run's directory into the shapes of the wire.
"""
