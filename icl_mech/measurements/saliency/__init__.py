"""Saliency of edges, and its distribution over types of edges."""
