"""What is lost when tokens no longer see what stands before them."""
