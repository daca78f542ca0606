"""Accuracy with true and false demonstrations."""
