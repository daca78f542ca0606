"""An atlas: a folder of finished runs that were checked, and the static site it becomes."""

from icl_mech.atlas.checks import examined
from icl_mech.atlas.site import build
from icl_mech.atlas.store import Entry, add, load_atlas

__all__ = ["Entry", "add", "build", "examined", "load_atlas"]
