"""A kind of model: `--model reversing:` answers with the question, reversed."""

from benchmax import ModelClient, ScriptedModel


def open_model(rest: str) -> ModelClient:
    return ScriptedModel(lambda messages: f"<word>{messages[-1]['content'][::-1]}</word>", name=f"reversing:{rest}")
