"""Runs that an atlas takes, and those it refuses."""
