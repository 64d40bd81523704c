"""Conversations as token ids.

chat                a tokenizer and chat template: prompts, and what follows a sampled turn; start reading here
token_model         a model that takes ids and returns ids, behind the model port; the exact ids of a conversation
conversation_cache  exact tokens behind an API that only carries text
drift_audit         where a template or tokenizer changes what was said
"""
