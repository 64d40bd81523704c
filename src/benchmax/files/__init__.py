"""Files, safely: whole or not at all, without following links, without secrets. Every room may use this one.

atomic      replace a file in one instant
archives    unpack an archive that somebody else made
json_size   count what a JSON text unfolds into, before it is parsed
jsonl       append-only records that survive a crash
links       open a file below a folder that others may write to
redaction   take secrets out of text
"""
