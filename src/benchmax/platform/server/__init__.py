"""The HTTP server: users, keys, files, runs and their index. It never imports, unpickles or runs a user's code.

`app` assembles it. A request passes `security` (who is calling, which scope the route needs, whose run it is), then one
of `routes`, which parses it and calls `services`. `server_services` holds what all of them work with; `error_responses`
turns errors into answers, `downloads` has the headers of files. `settings` is how one server is set up, `threads` which
functions run where, `logs` the log. Start with `routes/routers.py` for what there is, `security/scopes.py` for who may
call it.
"""
