"""The HTTP server: users, keys, files, runs and their index. It never imports, unpickles or runs a user's code.

app       puts it together            access  who may call which route; the app starts only if each is listed
guard     Host, Origin, headers, size auth    who is calling
launch    launch arguments, checks    sse     live feeds
sources   what a launch names         models  which model a caller means; `completions` asks it
routes/   one file for each noun
"""
