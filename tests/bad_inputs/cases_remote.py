"""Models that no server runs."""

import icl_mech as icl
from icl_mech.errors import ModelError
from tests.bad_inputs.case import Case

CASES = [
    Case(
        "a TransformerBridge to be run on a server",
        lambda b: icl.remote_model(b.model),
        ModelError,
        ("TransformerBridge",),
    ),
    Case("a name to be run on a server", lambda b: icl.remote_model("gpt2"), ModelError, ("str",)),
    Case(
        "an object that is no model",
        lambda b: icl.predict({"model": "gpt2"}, b.prompts),
        ModelError,
        ("dict",),
    ),
]
