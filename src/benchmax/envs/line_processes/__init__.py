"""Helper processes that answer one line of JSON with another: for libraries that may hang, crash or be slow to load.

client   `LineProcesses`, which starts them and asks
child    what such a process runs: `serve`, and `apart` for what must not last; it needs the standard library alone
"""
