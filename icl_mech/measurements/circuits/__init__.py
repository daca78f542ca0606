"""Circuits: sets of heads, nodes or edges, and how much of the answer they carry."""
