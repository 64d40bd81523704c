"""Server processes on Linux: each in the sandbox, Python ones forked from a process that has imported their packages.

server_sandbox  the sandbox of one server's processes, on the agent's side; start reading here
loader          what the forker imports for a server, and how it runs one in a fork
preload         imports a server's packages in it, and leaves out those that a fork would break
warm_up         has an SDK speak once before servers are forked
python_program  which commands can be forked
read_rules      which paths a server or a reward function may read

preload and warm_up run under the server's own interpreter, Python 3.9 or later, with the standard library alone: they
import nothing of benchmax. What holds a process is in `benchmax.sandbox`.
"""
