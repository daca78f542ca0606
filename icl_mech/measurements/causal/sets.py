"""Names of the sets of heads that the field compares, and what removing each should do.

*Function-vector* heads have the largest average indirect effects, *induction* heads the highest induction
scores on random tokens, *false induction* heads the highest prefix matching on false demonstrations,
*label-promoting* heads the highest score of that name.

Source: Todd et al. 2024, *Function vectors in large language models*; Olsson et al. 2022, *In-context
learning and induction heads*; Halawi et al. 2023, *Overthinking the Truth*, §5; compared after Yin and
Steinhardt 2025, *Which attention heads matter for in-context learning?*
"""

from typing import Literal, NamedTuple

FUNCTION_VECTOR = "function vector"
INDUCTION = "induction"
FALSE_INDUCTION = "false induction"
LABEL_PROMOTING = "label promoting"


class Expected(NamedTuple):
    """What is claimed of a set of heads.

    Attributes:
        name: Of the set.
        claim: In words.
        side: Demonstrations with which it is tested.
        rising: Removing its own heads raises the right answer, and more than removing random ones.
    """

    name: str
    claim: str
    side: Literal["true", "false"]
    rising: bool


EXPECTED = (
    Expected(FUNCTION_VECTOR, "Function-vector heads: without them the right answer falls behind true demonstrations",
             "true", False),
    Expected(INDUCTION, "Induction heads: without them the right answer falls behind true demonstrations",
             "true", False),
    Expected(FALSE_INDUCTION, "False induction heads: without them the right answer rises behind false demonstrations",
             "false", True),
    Expected(LABEL_PROMOTING, "Label-promoting heads: without them the right answer rises behind false demonstrations",
             "false", True),
)  # fmt: skip
