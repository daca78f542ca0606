"""Confusion of classes, predicted from the keys of label words."""
