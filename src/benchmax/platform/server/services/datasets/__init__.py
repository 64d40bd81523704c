"""Datasets that users uploaded.

`dataset_files` finds, names and grows them; `stored_rows` reads their rows; `preview` says what is in a file and what
is wrong with it. Files that are large, or can only be read whole, are read by `rows_child`, a process with bounded
memory that `bounded_rows` starts. No code of a user runs here: columns are checked as the built-in environments read
them.
"""
