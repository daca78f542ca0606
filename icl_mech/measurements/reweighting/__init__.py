"""Re-weighting: attention to label words scaled by learned factors."""
