"""Saliency of edges, and how it is shared between kinds of edges."""
