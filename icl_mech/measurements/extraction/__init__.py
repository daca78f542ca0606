"""Extraction: whether attention to label words determines the prediction."""
