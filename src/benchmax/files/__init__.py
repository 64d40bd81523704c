"""Files written and read safely: whole or not at all, without following links, without secrets. Any room may use it.

atomic      replaces a file in one step
jsonl       append-only records that survive a crash
links       opens files below a directory that others may write to
redaction   removes secrets from text
"""
