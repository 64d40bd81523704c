"""From scored groups of rollouts to changed weights. Nothing here samples, reads files or knows of runs.

advantage  what a sample is worth compared with its siblings, and which groups have no signal
batch      rollouts packed as prefix trees
loss       the GRPO loss
policy     the model being trained
optim      AdamW with warm-up, decay and clipping
learner    one step of learning with all of these; start reading here
gpu        a GPU's memory, shared with others
"""
