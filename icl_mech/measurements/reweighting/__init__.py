"""Attention to label words scaled by learned factors."""
