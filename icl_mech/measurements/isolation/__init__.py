"""Isolation: the loss when tokens no longer attend to earlier tokens."""
