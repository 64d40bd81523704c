"""Watching a run: alarms for the ways it goes wrong while its loss looks fine, and going back when one rings.

alarms    what each step and evaluation is looked at for; start reading here
mending   back to the last good checkpoint with a smaller step, at most a few times; then the diagnosis
"""
