"""Where the rollouts of a run come from.

collector         the rollouts of one step: start reading here
prompt_selection  which prompts come next: epochs, or a curriculum
rollout_settings  what is sampled at once, and by which settings
sampler           plays prompts with the local engine; the port for any other sampler
round_barrier     makes sampling on a CPU repeatable to the last bit
step_metrics      what a step's rollouts amount to, in numbers
"""
