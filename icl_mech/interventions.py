"""What can be changed in a forward pass: frozen, serialisable values that yield hooks."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from icl_mech.models import Hook
from icl_mech.segments import Segment


class Intervention(ABC):
    """A change of the forward pass; any reading can be taken under any interventions."""

    @abstractmethod
    def hooks(self, segment: Segment) -> Sequence[Hook]:
        """The hooks that make this change in one segment."""
