"""Anchors in any text: which spans and tokens later text rests on."""
