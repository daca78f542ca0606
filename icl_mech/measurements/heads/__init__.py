"""Heads that attend to label words, and the effect of ablating them."""
