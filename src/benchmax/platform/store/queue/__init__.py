"""Work for the runner: `jobs` and their leases, `one_off_jobs`, and `live_sessions`, which are files."""
