"""Calibration: label probabilities corrected for the model's content-free prior."""
