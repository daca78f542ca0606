"""What a page says of anchors in texts, written from their numbers."""

from typing import TYPE_CHECKING

import torch

from icl_mech.metrics import Interval
from icl_mech.results import Figure
from icl_mech.results.judging import OPENINGS, judged
from icl_mech.results.wording import counted, listed, said, told

if TYPE_CHECKING:
    from icl_mech.measurements.anchors.agreement import AgreementOfAnchors
    from icl_mech.measurements.anchors.span_result import SpanMatrices
    from icl_mech.measurements.anchors.suppression_result import SuppressionEffects
    from icl_mech.measurements.anchors.token_result import TokenAnchors

ONE_TEXT = "One text is an example, not evidence."

OBSERVED = (
    "What is read need not matter: only hiding it shows that. Spans that stand early are read by more "
    "spans, and later spans spread their attention over more tokens."
)


def span_figures(result: "SpanMatrices") -> list[Figure]:
    """One text by span, heads by kurtosis where they are known, and one text coloured."""
    own, texts = result.of, counted(len(result.matrices), "text")
    matrix = Figure(
        "",
        "Which spans does later text read?",
        _most_read(result),
        f"**Mean {own} between the spans of one text**, by layer. Rows read, columns are read; zeros "
        "above the diagonal count in diagonal cells. One logarithmic range of colours holds for all "
        "layers.",
        "Where the model looks when it reads this text.",
        ONE_TEXT,
        "Spans of one text",
    )
    text = Figure(
        "text",
        "Where do the spans that are read most stand?",
        "",
        f"**One text coloured by the vertical score of its spans**: the mean {own} of the spans that "
        f"follow at a distance of {counted(result.proximity, 'span')} or more. The last "
        f"{result.proximity} have none.",
        "",
        f"{ONE_TEXT} {OBSERVED}",
        "Text by vertical score",
    )
    if own != "attention" or not bool(result.kurtosis.isfinite().any()):
        return [matrix, text]
    found = result.receiver_heads(min(5, int(result.kurtosis.nanmean(0).isfinite().sum())))
    layer, head = found[0]
    value = result.interval("kurtosis", layer=layer, head=head)
    heads = Figure(
        "heads",
        "Which heads read a few spans much more than the others?",
        f"Head {layer}.{head} (layer.head) has the most peaked vertical scores: kurtosis {said(value)}. "
        f"The largest are {listed(f'{a}.{b}' for a, b in found)}.",
        "**Kurtosis of the vertical scores of every head**, mean over "
        f"{texts}; 0 is that of a normal distribution. Framed are the largest; they were chosen among "
        "all heads on these texts, so the interval of the largest is too high on average.",
        "Which heads attend to single spans from all over the later text.",
        "Which spans these are, and whether the model needs them. Chosen heads must be tested on other "
        "texts.",
        "Receiver heads",
    )
    return [matrix, heads, text]


def _most_read(result: "SpanMatrices") -> str:
    """The span of the first text that the later ones read most."""
    scores = result.scores(0)
    if not bool(scores.isfinite().any()):
        values = result.matrices[0].double().mean((0, 1)).tril(-1)
        place = int(values.sum(0).argmax())
        return f"Of the spans of the first text, later ones read span {place} (“{result.names[0][place]}”) most."
    place = int(scores.nan_to_num(nan=-1.0).argmax())
    typical = float(scores.nanmedian())
    times = f", {told(float(scores[place]) / typical)} times the median span" if typical > 0 else ""
    return (
        f"Of the spans of the first text, span {place} (“{result.names[0][place]}”) has the largest "
        f"vertical score: a mean {result.of} of {told(float(scores[place]))} per edge{times}."
    )


def suppression_figures(result: "SuppressionEffects") -> list[Figure]:
    """One text, effects by distance, and one text coloured."""
    scores = result.scores(0, result.proximity)
    place = int(scores.nan_to_num(nan=-1.0).argmax())
    where = " at a distance of two or more" if result.proximity == 2 else ""
    following = result.interval("divergence", distance=1)
    texts = counted(len(result.spans), "text")
    answer = (
        f"Of the spans of the first text, hiding span {place} (“{result.names[0][place]}”) changes later "
        f"spans{where} most: by {told(float(scores[place]))} nats on average."
    )
    far = ""
    if result._reach > 1:
        last = result.interval("divergence", distance=result._reach)
        far = f", the one {result._reach} spans on by {said(last)}"
    change = result.interval("change", distance=1)
    return [
        Figure(
            "",
            "Which spans does later text depend on?",
            answer,
            "**Mean KL divergence of the next-token distribution in a span (row) when another span (column) "
            "is hidden** from all later tokens, in all heads of the chosen layers; float64, whole "
            "vocabulary. Blank: spans before the hidden one.",
            "What the model's predictions lose when it cannot attend to a span.",
            f"{ONE_TEXT} Hidden spans are out of distribution, and what they told may also stand "
            "elsewhere.",
            "Effects in one text",
        ),
        Figure(
            "distance",
            "How far does the effect of a span reach?",
            f"Hiding a span moves the next one by {said(following)} nats{far}; the next span's own tokens "
            f"change by {said(change, sign=True)} nats each.",
            f"**Effect by distance in spans**, mean over the pairs of a text, then over {texts}; band: 95 % "
            "interval over texts. Shown are the distances that every text has.",
            "Whether later text depends on what stands just before it, or farther back.",
            "Which spans matter: a mean over pairs hides single anchors.",
            "Effects by distance",
        ),
        Figure(
            "text",
            "Where do the spans that matter most stand?",
            "",
            "**One text coloured by the mean effect of hiding each span** on later ones" f"{where}.",
            "",
            ONE_TEXT,
            "Text by effect",
        ),
    ]  # fmt: skip


def token_figures(result: "TokenAnchors") -> list[Figure]:
    """The tokens compared beside those near them, and one prompt as text."""
    prompts = len(result.anchors)
    own, near = (result.interval("multiple", kind=kind) for kind in ("marked", "matched"))
    share, matched = (result.interval("found", kind=kind) for kind in ("marked", "matched"))
    of = result.compared
    places = {i for i, names in enumerate(result.anchors) if names}
    named = _anchors_named(result, min(places)) if places else ""
    return [
        Figure(
            "",
            f"Do {of} stand out as anchors?",
            f"{_compared(result)} They receive {said(own)} times the median {result.of} of the tokens around "
            f"them, tokens near them {said(near)}. One by one, {said(share)} of them are anchors, of the tokens "
            f"near them {said(matched)}.",
            f"**Column mass** of {of} and of all other tokens at most {result.window} positions away, as a "
            f"multiple of the median there; mean over {counted(prompts, 'prompt')}, bars: 95 % intervals.",
            "Whether tokens of this kind are read more than their place and the spread of other tokens "
            "explain, for other prompts of these words and for other words.",
            "That the model needs them; hide them to see. Which property of theirs it is. Multiples and "
            "intervals alone show nothing: heads that read words at random read some of them much, in all "
            "prompts.",
            "Anchor tokens",
        ),
        Figure(
            "text",
            "Which tokens are anchors?",
            named or "No token stands out.",
            f"**One prompt coloured by column mass**, as a multiple of the median nearby. Framed: "
            f"{_anchor_rule(result)}.",
            "",
            "One prompt is an example, not evidence.",
            "Text by column mass",
        ),
    ]  # fmt: skip


def _compared(result: "TokenAnchors") -> str:
    """Whether they stand out, and what that rests on."""
    status, of = result.status, result.compared
    opening = (
        f"{OPENINGS[status]}{' with so few prompts or words' * (status == 'cannot be judged')}."
    )
    if not result.scores:
        return f"{opening} This result was saved before there were scores."
    own, near = (result.interval("score", kind=kind) for kind in ("marked", "matched"))
    first, other = (result.interval("strongest", kind=kind) for kind in ("marked", "matched"))
    test = result.words_test
    return (
        f"{opening} {of.capitalize()} lie {said(own)} spreads of their text above the tokens around them, "
        f"tokens near them {said(near)} (difference {said(result.interval('score_difference'), sign=True)}); "
        f"permutation p-value over words {told(test.p_value)} ({counted(test.named, 'word')} against "
        f"{test.others}). {said(first)} of them are among as many tokens of their text that stand out most, "
        f"of the tokens near them {said(other)}."
    )


def _anchor_rule(result: "TokenAnchors") -> str:
    if result.ratio is not None:
        return f"more than {result.ratio:g} times"
    return (
        "further from it than the largest of a text without anchors is in 95 % of cases, by the spread of "
        "the other tokens"
    )


def _anchors_named(result: "TokenAnchors", number: int) -> str:
    times = result.times[number]
    order = sorted(result.anchors[number], key=lambda i: -float(times[i]))[:5]
    words = [f"“{result.tokens[number][i].strip() or '↵'}” ({i})" for i in order]
    which = "the first prompt" if number == 0 else f"prompt {number}"
    return f"The strongest of {which}: {listed(words)}."


def agreement_figures(result: "AgreementOfAnchors") -> list[Figure]:
    """The correlations."""
    texts = len(result.correlation)
    plain: dict[str, Interval] = {
        score: result.interval(control="plain", score=score)
        for score in ("all_heads", "receiver_heads", "saliency")
    }
    ranked = result.interval(control="depth", score="all_heads")
    status = judged(plain["all_heads"], prompts=texts)
    heads = plain["receiver_heads"]
    receivers = f", of {counted(result.top, 'receiver head')} {said(heads)}" if torch.isfinite(torch.tensor(heads.value)) else ""  # fmt: skip
    return [
        Figure(
            "",
            "Do the spans that are read most matter most?",
            f"{OPENINGS[status]}{' with so few texts' * (status == 'cannot be judged')}. The rank correlation "
            f"of the effect of hiding a span with the attention of all heads is {said(plain['all_heads'])}"
            f"{receivers}, with saliency {said(plain['saliency'])}; with rows as ranks the first is "
            f"{said(ranked)}.",
            "**Spearman's rank correlation over the spans of a text**, mean over "
            f"{counted(texts, 'text')}, bars: 95 % intervals. Scores are means over the spans that follow at "
            f"a distance of {counted(result.proximity, 'span')} or more. Receiver heads were chosen for "
            "each text from the others.",
            "Whether attention tells which spans the model depends on.",
            "Position alone makes both sides alike: compare with rows as ranks.",
            "Attention and effect",
        )
    ]
