"""Figures that cannot be derived from what a result declares: one file for each method with such figures.

`drawing(result, show, ...)` of `icl_mech.looks.METHOD` gives the shape; see `icl_mech.results.shown`.
"""
