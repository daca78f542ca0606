"""What the two papers claim, and what a run found of it."""
