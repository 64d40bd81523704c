"""The OpenAI API over one local model.

serve        the HTTP server: routes, access, errors, streams; start reading here
completions  answers requests with the model, whole or as chunks
openai_api   the shapes of requests and replies
stream       text out of tokens while they come
"""
