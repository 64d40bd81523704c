"""Commands that need no platform: environments, validation, evaluation, training, models, MCP servers.

env, data               environments by name; rows of a file
validate                the doctor; signal_report is its look at a model's first samples
evals, show             eval, compare and replay; saved rollouts, to read
train                   train, export and plot
models, serve           models of this machine; one of them behind the OpenAI API
mcp, wikipedia          MCP servers of a workdir; articles for the environment of that name
setup, doctor, limits   a new project; whether this machine is ready; every limit
"""
