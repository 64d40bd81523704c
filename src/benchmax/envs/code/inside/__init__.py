"""What runs in sandboxed processes: the solution on one side, assert statements on the other.

plain       plain data as JSON, by exact type; both sides of every line use it
solution    runs what a model wrote: takes one call's arguments at a time, returns what the function returned
asserts     runs a row's assert statements, and asks for every call of the function

Nothing here imports benchmax: the source of these modules is given to the sandbox, where it has other names.
"""
