"""Work for the runner: `jobs` and their leases, what is `waiting`, one-off jobs, and live sessions, which are files."""
