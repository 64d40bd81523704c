"""The self-hosted platform: a server with a web console, a runner that trains, and the clients to both.

`sdk` has the Python clients, `wire` the shapes both sides agree on, `server` the HTTP API, `store` the database and the
data directory, `runner` the processes that train and evaluate, `daemon` the process that keeps server and runner alive.
`client`, `exceptions`, `training_run` and `validation` are the documented import paths.

Server and runner share nothing but the store; `sdk` and `wire` import none of the three.
"""
