"""Axis names, spelled once.

Shapes are written as jaxtyping strings over these axes:

======== ==================================================================
`batch`  prompts
`pos`    positions of a padded batch (`dest` attends from, `src` is attended)
`layer`  blocks 0...L-1 (lens entries 0...L where a docstring says so)
`head`   query heads, also in grouped-query models
`label`  label words, in class order
`score`  the kinds of a score, named by the result's coordinates
======== ==================================================================
"""

from jaxtyping import Bool, Float, Int
from torch import Tensor

__all__ = ["Bool", "Float", "Int", "Tensor"]
