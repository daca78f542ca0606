"""Compression: demonstrations replaced by a small key/value cache, the stand-in."""
