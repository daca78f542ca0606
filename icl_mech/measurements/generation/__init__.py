"""Texts written by the model, and what each step of the writing reads."""
