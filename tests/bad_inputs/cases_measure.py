"""Bad arguments of measurements."""

import icl_mech as icl
from icl_mech.errors import RunError
from tests.bad_inputs.case import Case

CASES = [
    Case(
        "memory that is no size",
        lambda b: icl.flow_scores(b.model, b.prompts, memory="plenty"),
        RunError,
        ("'plenty'", "8GB"),
    ),
]
