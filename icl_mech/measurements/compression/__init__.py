"""Compression: demonstrations replaced by a short stand-in."""
