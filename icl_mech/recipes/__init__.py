"""The papers' tables and figures as recipes: YAML files that say what is run and which numbers were published.

from icl_mech.recipes import recipes, reproduce

recipes()  # by name
reproduce("lw-table-1", "gpt2-xl", out="runs/table-1")
"""

from icl_mech.recipes.comparing import Reproduction
from icl_mech.recipes.recipe import Recipe, recipe, recipes, shown_in_papers
from icl_mech.recipes.reproducing import reproduce

__all__ = ["Recipe", "Reproduction", "recipe", "recipes", "reproduce", "shown_in_papers"]
