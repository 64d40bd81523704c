"""The embedded GRPO trainer: sample groups, compare siblings, update, repeat.

config ─▶ loop ─▶ sampler ──groups of rollouts──▶ advantage ─▶ batch ─▶ loss ─▶ optim ─▶ policy ─▶ sampler
            │                                                                              │
            └──▶ rundir: metrics, rollouts, events, checkpoints   ◀── watchdogs            └──▶ export
"""
