"""Bad interventions."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

import icl_mech as icl
from icl_mech.errors import PromptError, RunError
from icl_mech.interventions import Cut, Intervention, TokenSet, load_intervention
from icl_mech.measurements import Flow
from icl_mech.models import Site
from tests.bad_inputs.case import Bench, Case

BETA = torch.zeros(3, 4, 2)
OUT = Site("z", 0)


class Own(Intervention):
    """A user's own, with hooks as given."""

    def __init__(self, given: Any) -> None:
        self.given = given

    def hooks(self, segment: Any) -> Any:
        """As given."""
        return self.given

    def to_dict(self) -> dict[str, Any]:
        """Nothing to tell."""
        return {"intervention": "Own"}


def made(what: str, make: Callable[[], object], *says: str) -> Case:
    """A value that cannot be made."""
    return Case(what, lambda b: make(), RunError, says)


def used(what: str, make: Callable[[], Any], *says: str) -> Case:
    """What cannot be given as interventions."""
    return Case(
        what, lambda b: icl.predict(b.model, b.prompts, interventions=make()), RunError, says
    )


def refused(what: str, cut: Cut, *says: str) -> Case:
    """A cut that these prompts have no tokens for."""
    return Case(
        what, lambda b: icl.predict(b.model, b.prompts, interventions=[cut]), PromptError, says
    )


def placed(positions: Sequence[Sequence[int]]) -> Callable[[], list[Intervention]]:
    """Isolated positions."""
    return lambda: [icl.Isolate([0], positions=positions)]


def own(hooks: Any) -> Callable[[], list[Intervention]]:
    """A user's own."""
    return lambda: [Own(hooks)]


def factors(value: float) -> torch.Tensor:
    """All the same."""
    return torch.full((3, 4, 2), value)


def called(bench: Bench, **given: Any) -> object:
    """Means of heads under which predictions are made."""
    return icl.predict(
        bench.model, bench.prompts, interventions=[icl.ZeroHeads([(0, 1)], kind="mean", **given)]
    )


CASES = [
    made("layers that are no whole numbers", lambda: icl.Isolate([1.5]), "1.5"),
    made("layers as text", lambda: icl.Isolate("01"), "layers='01'"),
    made("one layer without a list", lambda: icl.Isolate(3), "layers=3"),
    made("truth for a layer", lambda: icl.Isolate([True]), "True"),
    made("no layers", lambda: icl.Isolate([])),
    made("layers of floats in a tensor", lambda: icl.Isolate(torch.tensor([0.5])), "0.5"),
    made("unknown tokens", lambda: icl.Isolate([0], tokens="labels"), "'label'"),
    made("unknown mode", lambda: icl.Isolate([0], mode=None), "mode=None"),
    made("negative seed of a draw", lambda: icl.Isolate([0], seed=-1), "seed=-1"),
    made("seed that is no number", lambda: icl.Isolate([0], seed="1"), "seed='1'"),
    made("positions that are no rows", placed([3])),
    made("positions of floats", placed([[1.5]]), "[1.5]", "1.5"),
    made("negative positions", placed([[-1]]), "-1"),
    used("a position behind a prompt", placed([[1], [1], [1], [999]]), "999", "prompt 3"),
    used("positions of fewer prompts", placed([[1]] * 3), "3 prompts"),
    used("positions of more prompts", placed([[1]] * 9), "9 prompts"),
    used("layer out of range", lambda: [icl.Isolate([99])], "layer 99"),
    made("cut tokens of an unknown name", lambda: Cut("anchor"), "'anchors'"),
    made("an unknown relation", lambda: Cut(relation="other"), "'others'"),
    made("cut tokens of another kind", lambda: Cut({"on": "target"}), "'on'"),
    made("before as rows", lambda: Cut("units", "before")),
    made("after as columns", lambda: Cut("after", "target")),
    made("after with a relation", lambda: Cut("units", "after", "own"), "relation='any'", "'own'"),
    made("random tokens among others", lambda: Cut(["random", "query"])),
    made("no units", lambda: TokenSet("units", units=[])),
    made("no layers of a cut", lambda: Cut(layers=[]), "layers=()"),
    made("a layer of a cut twice", lambda: Cut(layers=[1, 1]), "(1, 1)"),
    made("heads and layers of a cut", lambda: Cut(layers=[1], heads=[(1, 0)])),
    made("an empty interval", lambda: TokenSet(positions=[[(3, 3)]]), "3 to 3"),
    used("a cut layer out of range", lambda: [Cut(layers=[9])], "0 to 2"),
    used("a cut head out of range", lambda: [Cut(heads=[(0, 9)])], "0 to 3"),
    refused("a source behind its rows", Cut("query", "units"), "prompt 0"),
    refused("cut tokens no prompt has", Cut("narrative"), "'narrative'"),
    refused("a relation without pairs", Cut("query", relation="own"), "2 units", "relation='own'"),
    refused("a unit too many", Cut(TokenSet("units", units=[7])), "number 7", "Prompt 0", "has 2"),
    refused("an interval outside", Cut(TokenSet(positions=[[(0, 999)]] * 4)), "999", "prompt 0"),
    used("a position outside", lambda: [Cut(TokenSet(positions=[[999]] * 4))], "999", "prompt 0"),
    used(
        "cut positions of others",
        lambda: [Cut(TokenSet(positions=[[1]] * 3))],
        "3 prompts",
        "has 4",
    ),
    made("heads without layers", lambda: icl.ZeroHeads([3, 4]), "(layer, head)"),
    made("heads of three numbers", lambda: icl.ZeroHeads([(0, 1, 2)]), "(0, 1, 2)"),
    made("heads of floats", lambda: icl.ZeroHeads(np.array([[0.5, 1]])), "0.5"),
    made("a pair without a list", lambda: icl.ZeroHeads((0, 1)), "(layer, head)"),
    made("a head twice", lambda: icl.ZeroHeads([(0, 1), (0, 1)])),
    made("no heads", lambda: icl.ZeroHeads([])),
    made("unknown kind", lambda: icl.ZeroHeads([(0, 1)], kind="zero")),
    made("unknown place", lambda: icl.ZeroHeads([(0, 1)], at="targets"), "'target'"),
    used("head out of range", lambda: [icl.ZeroHeads([(0, 77)])], "head 77"),
    Case("means of lists", lambda b: called(b, means=[[1.0]]), RunError),
    Case("means of another size", lambda b: called(b, means=torch.zeros(1, 3)), RunError),
    Case(
        "infinite means", lambda b: called(b, means=factors(torch.inf)[0, :1]), RunError, ("NaN",)
    ),
    made("a start that is no number", lambda: icl.ZeroLayers("1"), "start='1'"),
    made("a start that is true", lambda: icl.ZeroLayers(True), "start=True"),
    made("an unknown part", lambda: icl.ZeroLayers(1, part="blocks"), "'block'"),
    used("a start out of range", lambda: [icl.ZeroLayers(55)], "layer 55"),
    made("factors that are NaN", lambda: icl.Reweight(factors(torch.nan)), "beta", "NaN"),
    made("infinite factors", lambda: icl.Reweight(factors(torch.inf)), "beta"),
    made("whole factors", lambda: icl.Reweight(BETA.long()), "int64", "float"),
    made("factors of two axes", lambda: icl.Reweight(BETA[0]), "[4, 2]"),
    made("factors of NumPy", lambda: icl.Reweight(BETA.numpy()), "ndarray"),
    used("factors of another model", lambda: [icl.Reweight(BETA[:1])], "1 layers", "has 3"),
    used("factors of more classes", lambda: [icl.Reweight(BETA[..., :1])], "1 classes", "have 2"),
    used("one intervention without a list", lambda: icl.Isolate([0])),
    used("None for interventions", lambda: None, "interventions=None"),
    used("an intervention's name", lambda: ["Isolate"], "'Isolate'"),
    used("an intervention's class", lambda: [icl.Isolate], "Isolate"),
    used("a measurement to intervene", lambda: [Flow()], "Flow("),
    used("a list in a list", lambda: [[icl.Isolate([0])]], "Isolate("),
    used("hooks that are none", own(None), "hooks() of Own=None"),
    used("one hook without a list", own((OUT, torch.zeros_like))),
    used("a site as text", own([("z", torch.zeros_like)])),
    used("a hook that is no function", own([(OUT, 3)])),
    used("a hook that returns text", own([(OUT, lambda a: "x")]), "returned 'x'"),
    used("a hook that cuts", own([(OUT, lambda a: a[:, :1])])),
    made("a saved list", lambda: load_intervention([]), "to_dict()"),
    made("a saved name", lambda: load_intervention({"intervention": "Isolat"}), "'Isolate'"),
    made("half of one", lambda: load_intervention({"intervention": "Isolate"}), "layers"),
]
