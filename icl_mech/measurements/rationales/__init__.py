"""Rationales between a text and its answer: what they add, sentence by sentence, and whether the answer is read from them."""
