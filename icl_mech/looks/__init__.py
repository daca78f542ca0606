"""Figures that do not follow from what a result declares: one file for each method that has some.

`drawing(result, show, ...)` of `icl_mech.looks.METHOD` gives the shape; see `icl_mech.results.shown`.
"""
