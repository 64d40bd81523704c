"""The runner: leases queued runs, gives each a process group of its own, and reads its directory into the database.

    supervisor ── leases ──▶ jobs table
        ├── processes ──▶ python -m benchmax.platform.runner.children.train_child RUN_DIR ── lifeline ──┐
        │                                                              ◀─ ends without it ┘
        ├── ingest ◀── run directory
        └── sessions ──▶ python -m benchmax.platform.runner.live.session_child FOLDER ◀── socket ── server

The run directory is the truth. Whatever is killed, the next supervisor finds the leases of the dead, adopts the
children that still live, resumes the others from their checkpoints, and goes on reading where the last one stopped.
"""
