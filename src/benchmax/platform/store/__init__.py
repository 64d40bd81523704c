"""The database: an index of what the run directories and blobs hold, and the only memory of users, keys and jobs.

`database` opens it, `schema_version` migrates it (`migrations`) or refuses what is newer, `tables` says what is in it,
`datadir` where files are. The queries are in the rooms `accounts`, `uploads`, `runs` and `queue`; `statements` has what
they share, `clean_text` makes texts fit to store. A query takes a database session (`db`) and never commits: whoever
opened the transaction decides what belongs together. Server and runner both use the store; it imports neither.
"""
