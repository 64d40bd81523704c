"""Every request of the platform's API that the clients make, described without a connection.

Each function returns a `Request`, or is a procedure of several (see `calls`); `client` makes methods of them. There is
one module for each noun: `runs`, `rollouts`, `comparisons`, `launches`, `checkpoints`, `resources` (environments and
datasets), `accounts`, `uploads`, and `played_rollouts` for those that belong to no run.
"""
