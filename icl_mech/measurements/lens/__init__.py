"""What layers, heads and MLPs would answer if they were read out at once."""
