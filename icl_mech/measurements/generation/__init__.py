"""Generation: texts written by the model, and the attention of each step."""
