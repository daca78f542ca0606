"""The explorer: change a prompt or a layer by hand, and see what it does."""

from icl_mech.explorer.server import Server
from icl_mech.explorer.view import Explorer, explore

__all__ = ["Explorer", "Server", "explore"]
