"""Agreement of runs on variants of the prompts."""
