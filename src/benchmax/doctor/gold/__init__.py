"""What a good answer looks like, found by trying: the environment's reward is the only judge.

    truths          the values of a task that may be the answer, each as the texts it could be written as
    forms           the forms a prompt asks for (tags, labels, JSON, code), in which an answer may have to stand
    finder          tries truths in forms and keeps what earns most
    programs        solutions by tool calls, searched where nothing tells them
    demonstrations  whole solutions, played through the environment's own tools; start reading here

Nothing here knows a trainer or a model: answers are played by scripts.
"""
