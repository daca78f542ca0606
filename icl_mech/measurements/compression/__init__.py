"""Demonstrations replaced by a short stand-in."""
