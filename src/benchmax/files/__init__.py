"""Files, safely: whole or not at all, without following links, without secrets. Every room may use this one.

atomic      replace a file in one instant
jsonl       append-only records that survive a crash
links       open a file below a folder that others may write to
redaction   take secrets out of text
"""
