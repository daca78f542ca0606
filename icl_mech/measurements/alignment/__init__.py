"""What answers follow: the truth, the demonstrations, or the model without demonstrations."""
