"""What people see of a run. Nothing here changes a run: it reads events, records and the trainer's state.

view          the events of a run while it trains: a live panel on a terminal, lines in a pipe
broken_pipes  output that survives a reader that goes away
plan          before the first step: what the run will do and take, measured on a dry run
summary       after the last step: what was learned, with answers before and after
plot          the reward curve as a picture
"""
