"""Alignment of answers with the truth, the demonstrations, or the model's answer without demonstrations."""
