"""The daemon of `benchmax up`, which keeps one server and one runner alive, and what starts, stops and asks it.

    daemon ─┬─ server    python -m benchmax.platform.server
            └─ runner    python -m benchmax.platform.runner

Start with `daemon` (the loop that keeps both alive), then `control` (start, stop, status: what the commands call).

    backup     the whole data directory as one archive
    control    starts and stops the platform, from another process
    daemon     the process itself: starts both again, later each time one dies young
    liveness   which processes run and answer, by files of the data directory
    options    how a platform is started: its command lines

A running platform is described by its data directory alone: daemon.json, server.json, locks/, logs/. The daemon knows
neither runs nor jobs.
"""
