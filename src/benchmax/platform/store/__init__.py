"""The database: an index of what the run directories and blobs hold, and the only memory of users, keys and jobs.

`database` opens it, `tables` says what is in it, and each other module holds the queries of one thing. A query takes a
session and never commits: who opened the transaction decides what belongs together.
"""
