"""Names of what is ablated."""

NONE, CHOSEN, RANDOM = "none", "chosen heads", "random heads"
"""Conditions with names of their own: unablated, the heads in question, their control."""
