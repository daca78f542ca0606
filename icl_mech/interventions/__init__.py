"""Interventions on a forward pass: frozen, serialisable values that yield hooks."""

from icl_mech.interventions.add_vector import AddVector
from icl_mech.interventions.base import At, Intervention, Interventions, Taken, load_intervention
from icl_mech.interventions.cut import Cut
from icl_mech.interventions.isolate import Isolate
from icl_mech.interventions.patch import Patch
from icl_mech.interventions.places import Place
from icl_mech.interventions.reweight import FittedReweight, Reweight
from icl_mech.interventions.suppress import Suppress
from icl_mech.interventions.token_sets import TokenSet
from icl_mech.interventions.zeroing import ZeroHeads, ZeroLayers

__all__ = [
    "AddVector",
    "At",
    "Cut",
    "FittedReweight",
    "Intervention",
    "Interventions",
    "Isolate",
    "Patch",
    "Place",
    "Reweight",
    "Suppress",
    "Taken",
    "TokenSet",
    "ZeroHeads",
    "ZeroLayers",
    "load_intervention",
]
