"""setup.sh: runs it before the first server starts, and keeps what it installs.

install   runs it in a virtual environment of its own; start reading here
inputs    what it depends on, and so when it has to run again
cache     what earlier runs installed

It starts no servers; the agent calls `install` and passes the result on.
"""
