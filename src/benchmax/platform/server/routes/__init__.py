"""The routes of the API, one module for each noun; `routers` lists all, `parameters` has what many take. Those about
one run are in `runs`.

A route parses its request, calls `services` or the store, and returns a shape of the wire. A new route needs a line in
`security/scopes.py`: without it the server does not start.
"""
