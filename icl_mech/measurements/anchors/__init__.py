"""Anchors in any text: spans and tokens that later text depends on."""
