"""What components do: their activations replaced, added, or followed by the gradient."""
