"""Every request of the platform's API that the clients make, as functions without input or output.

Each returns a `Request`, or a procedure of several (see `calls`); `client` makes methods of them. One module for each
noun: `runs`, `rollouts`, `launches`, `checkpoints`, `resources` (environments and datasets), `accounts`, `uploads`.
"""
