"""Readouts of layers, heads and MLPs: the answer each of them would give through the unembedding."""
