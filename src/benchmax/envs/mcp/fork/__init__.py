"""Server processes on Linux: forked from a process that has imported their packages, and confined.

fork_server_client  the agent's side: starts a fork server, and server processes through it; start reading here
fork_server         that process: forks, watches and kills servers
preload             imports a server's packages in it, and leaves out those that a fork would break
sandbox             Landlock, capabilities and limits of the current process
read_rules          which paths a server or a reward function may read

fork_server, preload and sandbox run under the server's own interpreter, Python 3.9 or later, with the standard library
alone: they import nothing of benchmax, and no psutil. Only this package calls what Linux alone has.
"""
