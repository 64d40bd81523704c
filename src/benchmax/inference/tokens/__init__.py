"""Conversations as token ids.

chat                a tokenizer and chat template: prompts, and what follows a sampled turn; start reading here
token_model         a model that takes ids and returns ids, behind the model port
dialogue            the exact ids of one conversation
prompt_cache        chat templates that render equal conversations once
conversation_cache  exact tokens behind an API that only carries text
tokenizer           a tokenizer out of a GGUF file
drift_audit         where a template or tokenizer changes what was said
"""
