"""The platform's clients in Python; their documented path is `benchmax.platform.client`.

Start with `client`: `TrainerClient` and `AsyncTrainerClient` share a table of methods over the descriptions in
`requests`. `calls` says what a request and a procedure are; `sync_and_async` makes methods of them, for both kinds of
client; `transport` carries them out, blocking or async, and is the only module that talks to the network.
`exceptions` is what it raises. `storage_client`, `rollout_client`, `run` and `playground` are the other clients and
handles; `credentials` finds the platform's address and key, `auto_start` the platform of this machine, started when
none runs; `upload` and `static_export` are built on the clients.

Nothing here may import the server, the runner or the store.
"""
