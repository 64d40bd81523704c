"""The runner: leases queued jobs, gives each a process group of its own, and reads its directory into the database.

    supervisor ── leases ──▶ jobs table
        ├── jobs ──▶ children: python -m benchmax.platform.runner.children.train_child RUN_DIR, and others
        ├── ingest ◀── run directory
        └── live ──▶ python -m benchmax.platform.runner.live.session_child FOLDER ◀── socket ── server

Start with `supervisor`, the loop. Then, by subject:

    children     the programs of the child processes, and the files between them and the runner
    event_texts  the trainer's events in words
    ingest       a run directory, read into the database as it grows
    jobs         the kinds of job, their leases, and how their ends are judged
    live         live sessions: environments and models kept open for the server to talk to
    processes    processes of this machine: started, tagged, watched, measured, ended

The run directory is the source of truth. Whatever is killed, the next supervisor finds the leases of the dead one,
adopts the children that still live, resumes the others from their checkpoints, and reads on where the last one stopped.
The runner never imports the server: they share only the store. User code never runs in the runner's own process.
"""
