"""Files written and read safely: whole or not at all, without following links, without secrets. Any room may use it.

archives    unpacks an archive from an untrusted source
atomic      replaces a file or a directory in one step
digests     the SHA-256 of files
display     untrusted text with its control characters escaped, and sizes in binary units
json_size   counts what a JSON text unfolds into, before it is parsed
jsonl       append-only records that survive a crash
links       opens files below a directory that others may write to
locks       locks between processes, released when their holder ends
logs        opens, rotates and tails the log of a process, and is a handler for one
redaction   removes secrets from text
temp_dirs   temporary directories that are removed also when their maker was killed
"""
