"""Random inputs: whatever comes in is understood, or refused in our words."""
