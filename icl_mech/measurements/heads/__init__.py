"""Heads that attend to label words, and what is lost without them."""
