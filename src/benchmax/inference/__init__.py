"""Running a model on this machine.

    local_model  a model behind the port of `models`: conversations, exact to the token; start reading here
    engine       token ids in, token ids out: scheduler, rows, keys and values, devices
    kernels      Triton kernels of the engine on CUDA
    tokens       conversations as token ids: chat templates, tokenizers, the audit of both
    weights      models on disk: the store, downloads, GGUF files, the Llama family
    server       the OpenAI API over a local model

Nothing here trains, scores or knows of environments; torch is imported at the top only where a model runs.
"""
