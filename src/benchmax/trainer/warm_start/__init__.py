"""A warm start: what a model that finds nothing by itself is shown before it searches for better answers.

    warm_start          whether one is needed and which; start reading here
    solutions           solutions of training rows as exact tokens, played through the environment
    hints               the model's own answers with the solution in sight
    sft_rows            chats and answers from a file
    forced_model        a model that says what it is given, in the tokens the trained model would sample
    supervised_steps    the supervised steps
    supervised_refresh  the same in the middle of a run that gets no further
    known_rewards       what good and bad answers earn, and how probable good ones are

Held-out rows are never used here.
"""
