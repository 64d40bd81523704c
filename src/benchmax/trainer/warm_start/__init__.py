"""A warm start: what a model that finds nothing by itself is shown before it searches for better answers.

    choice     whether one is needed and which: nothing where there is signal, the cheapest help where there is none
    lessons    solutions as exact tokens: demonstrations played through the environment
    hints      the model's own answers with the solution in sight
    rows       chats and answers from a file
    spoken     a model that says what it is told to, token by token as the local model would
    teaching   the supervised steps
    refresher  the same in the midst of a run that gets no further

Held-out rows are never used here.
"""
