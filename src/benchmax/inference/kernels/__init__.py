"""Triton kernels of the engine; plain torch (`engine.forward.TorchOps`) is the reference for each of them.

layers   norm, rotation, attention and SwiGLU, one launch each
decode   the layers of a decode step as a chain of five kernels, for small models
sample   drawing tokens
check    compares every kernel with the reference before it is used
"""
