"""The HTTP server: users, keys, files, runs and their index. It never imports, unpickles or runs a user's code.

app       puts it together            access  who may call which route; the app starts only if each is listed
guard     Host, Origin, headers, size auth    who is calling
launch    launch arguments            sse     live feeds
routes/   one file for each noun
"""
