"""What a page says of information flow and of a saliency map, written from their numbers."""

from typing import TYPE_CHECKING

from icl_mech.measurements.saliency.kinds import third_of
from icl_mech.measurements.saliency.roles import grouped
from icl_mech.metrics import Interval
from icl_mech.results import Figure
from icl_mech.results.judging import OPENINGS, judged, together
from icl_mech.results.wording import counted, layers_named, listed, said, told

if TYPE_CHECKING:
    from icl_mech.measurements.saliency.maps import SaliencyMaps
    from icl_mech.measurements.saliency.scores import FlowScores

PICTURE = "The paper prints its own curves (GPT2-XL) as pictures only, so none is drawn here."


def flow_figures(flow: "FlowScores") -> list[Figure]:
    """The flow, beside random tokens, and by role; the last two where they were measured."""
    found = [_flow(flow)]
    if flow.null is not None:
        found.append(_null(flow, int(flow.null.shape[1])))
    if flow.role_saliency is not None:
        found.append(_roles(flow))
    return found


def target_layer(flow: "FlowScores") -> int:
    """The layer of the second half in which most saliency per edge runs from label words to the target."""
    saliency = flow.per_prompt.double().mean(0)[1]
    half = len(saliency) // 2
    return half + int(saliency[half:].argmax())


def _prompts(flow: "FlowScores") -> str:
    given = ", given their shared demonstrations" * bool(
        flow.provenance.get("conditional_on_demonstrations")
    )
    return f"95 % bootstrap intervals over {counted(len(flow.per_prompt), 'prompt')}{given}"


def _span(flow: "FlowScores", third: str) -> str:
    layers = third_of(flow.values.shape[1], third)
    return layers_named(layers.start, layers.stop - 1)


def _flow(flow: "FlowScores") -> Figure:
    count, prompts = flow.values.shape[1], len(flow.per_prompt)
    question = "Do the texts feed the label words early, and these the target late?"
    parts = "(in the last layer only the target's row has any)"
    caption = (
        "**Share of each kind of edge in a layer's saliency, per edge**, by layer. Bands (each point for itself): "
        f"{_prompts(flow)}. The three shares of a layer add up to 1."
    )
    limits = (
        "Saliency is a first-order estimate of which attention edges matter for the loss; whether "
        "the model needs them only an intervention shows. Means per edge say nothing of totals: few "
        f"edges run from label words to the target, thousands are everything else. {PICTURE}"
    )
    short = "Information flow"
    if count == 1:
        answer = (
            f"Cannot be judged: the model has one layer, and nothing flows on from there {parts}."
        )
        return Figure("", question, answer, caption, "", limits, short)
    early, late = flow.above_null("wp", "first"), flow.above_null("pq", "last")
    if early is None or late is None:
        opening = "Cannot be judged: no random tokens could be put in the label words' place"
    else:
        status = together(*(judged(more, prompts=prompts) for _, more in (early, late)))
        # Some untrained networks are clear of random tokens, too: a yes is said beside these only.
        opening = "" if status in ("supported", "mixed") else f"{OPENINGS[status]}. "
        if status == "cannot be judged":
            opening = f"{OPENINGS[status]} with so few prompts. "
        opening += (
            f"Beyond random tokens in their place, label words receive {said(early[1], sign=True)} of "
            f"the saliency per edge of {_span(flow, 'first')} and send the target "
            f"{said(late[1], sign=True)} of that of {_span(flow, 'last')}"
        )
    answer = (
        f"{opening}. The shares themselves, {said(flow.share('wp', 'first'))} into label words early and "
        f"{said(flow.share('pq', 'last'))} from them late, say little: late ones are near 1 in untrained "
        "networks, too."
    )
    if flow.role_saliency is not None:
        answer += f" {_sources(flow)}"
    establishes = (
        "In which layers the edges of each kind matter more than an average edge of the others."
    )
    return Figure("", question, answer, caption, establishes, limits, short)


def _sources(flow: "FlowScores") -> str:
    """What the means per edge hide: where most of what the target receives comes from."""
    layer = target_layer(flow)
    names, quantity = flow.by_role("target")
    values, (low, high) = quantity.value()[:, layer], quantity.ends()
    shares = {
        name: Interval(float(values[i]), float(low[i, layer]), float(high[i, layer]))
        for i, name in enumerate(names)
    }
    if not any(share.value > 0 for share in shares.values()):
        return f"The target receives nothing in layer {layer}."
    label = shares.pop("label words", None)
    if label is None:
        return ""
    most = max(shares, key=lambda name: shares[name].value)
    opening = "But of all" if label.value < shares[most].value else "And of all"
    written = {"template": "the template", "texts": "the texts", "query": "the query"}
    return (
        f"{opening} saliency that the target receives in layer {layer}, {said(label)} comes from "
        f"label words and {said(shares[most])} from {written.get(most, most)}."
    )


def _null(flow: "FlowScores", draws: int) -> Figure:
    prompts = len(flow.per_prompt)
    into, out_of = flow.above_null("wp", "first"), flow.above_null("pq", "last")
    assert into is not None
    assert out_of is not None
    status = together(*(judged(more, prompts=prompts) for _, more in (into, out_of)))
    answer = (
        f"{OPENINGS[status]}{' with so few prompts' * (status == 'cannot be judged')}. Random tokens "
        f"near them receive {said(into[0])} of the saliency per edge of {_span(flow, 'first')} "
        f"(label words {said(flow.share('wp', 'first'))}, difference {said(into[1], sign=True)}) and "
        f"send the target {said(out_of[0])} of that of {_span(flow, 'last')} (label words "
        f"{said(flow.share('pq', 'last'))}, difference {said(out_of[1], sign=True)})."
    )
    return Figure(
        "null",
        "Is it the label words, or any tokens at their places?",
        answer.replace("Yes.", "The label words.", 1).replace("No.", "The random tokens more.", 1),
        "**The same shares with as many random tokens in the label words' place**: for each label "
        "word a token at most 16 positions away that belongs to none; mean of "
        f"{counted(draws, 'draw')}. Bands (each point for itself): {_prompts(flow)}; those of random tokens also over draws.",
        "How much of the flow is owed to label words rather than to where they stand.",
        "Which property of the label words it is: a line break beside them may carry as much.",
        "Random tokens",
    )


def _roles(flow: "FlowScores") -> Figure:
    layer = target_layer(flow)
    names, receiving = flow.by_role("receiving")
    shares = receiving.value()[:, layer]
    order = sorted(range(len(names)), key=lambda i: -float(shares[i]))
    parts = [f"{names[i]} {told(float(shares[i]))}" for i in order if float(shares[i]) > 0]
    where = (
        f"In layer {layer} the saliency is received by {listed(parts)} (shares of all). "
        if parts
        else f"In layer {layer} there is no saliency. "
    )
    rest = "template" if "template" in names else "other tokens"
    together_ = (
        "; template are format tokens, narrative and first token together"
        if rest == "template" and {"bos", "narrative"} & set(flow.roles)
        else ""
    )
    return Figure(
        "roles",
        "Where does most of the saliency run, counted by tokens' roles?",
        where + _sources(flow),
        "**Shares of the sum of saliency**, not of means per edge: left by the role of the tokens "
        "that receive, right of what the target receives by the role of the tokens it comes from. "
        f"Each adds up to 1. Bands (each point for itself): {_prompts(flow)}{together_}.",
        "How much of all saliency means per edge stand for.",
        "Many tokens of a role have a large share even if each matters little.",
        "Shares by role",
    )


def map_figures(maps: "SaliencyMaps") -> list[Figure]:
    """One prompt by segment."""
    tokens = len(maps.tokens[0])
    telling = maps.telling_layers()
    opens = maps.drawing().layer
    caption = (
        f"**Mean saliency per edge between segments of one prompt** ({counted(tokens, 'token')}). Rows "
        "receive, columns send; the diagonal cell holds a segment's own inner edges and is blank "
        "where it is one token. One logarithmic range of colours, stated at its bar, holds for all "
        f"layers. The figure opens at layer {opens}"
    )
    caption += (
        f": in the first half of the layers, saliency per edge runs into label words there by the "
        f"largest share; in layer {telling[1][0]}, in the second half, most runs from label words to "
        "the target."
        if telling
        else ", the one with the most saliency."
    )
    return [
        Figure(
            "",
            "Which tokens feed which?",
            _reading(maps, telling) if telling else _most(maps, opens),
            caption,
            "What the means of a prompt set are made of.",
            "One prompt is an example, not evidence.",
            "One prompt's saliency",
        )
    ]


def _reading(maps: "SaliencyMaps", telling: tuple[tuple[int, str], ...]) -> str:
    """What label words read early, and how much of all saliency the target's row holds late."""
    (early, _), (late, _) = telling
    values, roles = maps.values[0].double().tril(-1), maps.roles[0]
    starts = [i for i, role in enumerate(roles) if role == "label_word" and roles[i - 1] != role]
    own = []
    for place in starts:
        row = values[early, place]
        # The text of its own demonstration: the last before the label word.
        text = [i for i in range(place) if roles[i] == "demo_text"]
        first = next(
            (i + 1 for i in reversed(range(max(text, default=0))) if roles[i] != "demo_text"), 0
        )
        if text and float(row.sum()) > 0:
            own.append(float(row[first : text[-1] + 1].sum() / row.sum()))
    said_early = (
        f"In layer {early} the label words read their own demonstration's text "
        f"({', '.join(told(share) for share in own)} of their rows). "
        if own
        else ""
    )
    target = roles.index("target")
    total, row = float(values[late].sum()), values[late, target]
    if total == 0 or float(row.sum()) == 0:
        return f"{said_early}In layer {late} the target receives nothing."
    names, _, member = grouped(tuple(dict.fromkeys(roles)))
    by_role = dict(zip(dict.fromkeys(roles), range(len(set(roles))), strict=True))
    sums = row.new_zeros(len(by_role))
    for place, role in enumerate(roles):
        sums[by_role[role]] += row[place]
    shares = dict(zip(names, (member @ sums / row.sum()).tolist(), strict=True))
    label = shares.pop("label words", 0.0)
    most = max(shares, key=lambda name: shares[name])
    return (
        f"{said_early}In layer {late} the target's row holds {told(float(row.sum()) / total)} of all "
        f"saliency; {told(label)} of it comes from label words and {told(shares[most])} from "
        f"{'the template' if most == 'template' else most}: measured per edge, few edges weigh much."
    )


def _most(maps: "SaliencyMaps", layer: int) -> str:
    found = maps.by_segment()
    values = found.values[layer].nan_to_num(nan=-1.0)
    place = int(values.argmax())
    to, source = divmod(place, values.shape[1])
    if float(values.max()) <= 0:
        return f"No edge has any saliency in layer {layer}."
    return (
        f"In layer {layer} “{found.segments[to].name}” reads “{found.segments[source].name}” most "
        f"(mean saliency per edge {told(float(values.max()))})."
    )
