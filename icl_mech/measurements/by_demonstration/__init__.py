"""Single demonstrations: which of them are read, and the effect of leaving one out."""
