"""Work for the runner: `jobs` and their leases, what is `waiting`, `one_off_jobs`, and `live_sessions`, which are
files.
"""
