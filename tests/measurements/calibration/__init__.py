"""Calibration and alignment."""
