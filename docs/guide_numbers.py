"""Numbers and sentences from runs for the guides to the two papers.

Every function takes a saved run and returns texts by name; `docs/make_figures.py` puts them into
`docs/numbers.json`.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any

import icl_mech as icl
from icl_mech.measurements.reweighting.evaluate_reweighting import ReweightingResult
from icl_mech.measurements.saliency.flow import FlowScores
from icl_mech.metrics import Interval
from icl_mech.studies import published

FIXED = "\N{NO-BREAK SPACE}"
INTERVAL = re.compile(r"(\[[^][ ]+), ([^][ ]+\])")
METHODS = {
    "hidden_anchor": "Hidden_anchor",
    "text_anchor": "Text_anchor",
    "hidden_random": "Hidden_random",
    "hidden_random_top": "Hidden_random-top",
}


def number(value: float, signed: bool = False) -> str:
    """Two decimals, three below 0.1, with a true minus sign."""
    places = 3 if 0 < abs(value) < 0.0995 else 2
    return f"{value:{'+' if signed else ''}.{places}f}".replace("-", "−")


def shown(interval: Interval | None, signed: bool = False) -> str:
    """A value with its interval."""
    if interval is None:
        return "not defined"
    value, low, high = (number(end, signed) for end in interval)
    return f"{value} [{low},{FIXED}{high}]"


def per_cent(values: Iterable[float]) -> str:
    """Published percentages as fractions; of several, the smallest and the largest."""
    found = sorted(value / 100 for value in values)
    return number(found[0]) if len(found) == 1 else f"{number(found[0])} to {number(found[-1])}"


def table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table."""
    columns = list(columns)
    lines = [columns, ["---"] * len(columns), *map(list, rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def answers(run: icl.Analysis, *names: str) -> dict[str, str]:
    """The one-sentence answers of a run's page, by measurement."""
    found = {f"answer_{name}": run[name].figures()[0].answer for name in names}
    return {name: INTERVAL.sub(rf"\1,{FIXED}\2", answer) for name, answer in found.items()}


def over_seeds(flows: Sequence[FlowScores]) -> str:
    """Range over seeds of S_wp in the first third of the layers, and the mean interval of one seed."""
    found = [flow.share("wp", "first") for flow in flows]
    values = [each.value for each in found]
    wide = sum(each.high - each.low for each in found) / len(found) / 2
    return (
        f"over {len(found)} seeds, S_wp in the first third of the layers ranged from "
        f"{number(min(values))} to {number(max(values))}, whereas the interval of one seed is "
        f"± {number(wide)}"
    )


def beyond(run: icl.Analysis) -> dict[str, str]:
    """The excess of the flow over the random-token baseline, and the prediction bounds from untrained networks."""
    nulls = run["untrained"]
    found = {}
    for score, third in (("wp", "first"), ("pq", "last")):
        above = run.flow.above_null(score, third)
        found[f"above_{third}"] = shown(above[1] if above else None, signed=True)
        found[f"untrained_{third}"] = number(nulls.bound(third))
    shares = nulls.late_share
    return {**found, "untrained_pq": number(float(shares.mean())), "untrained": str(len(shares))}


def of_flow(run: icl.Analysis) -> dict[str, str]:
    """Numbers that every run has."""
    predictions = run.predictions
    return {
        "n": str(len(predictions.predicted)),
        "accuracy": shown(predictions.interval("accuracy")),
        "layers": str(run.flow.per_prompt.shape[-1]),
        **{
            f"{score}_{third}": shown(run.flow.share(score, third))
            for score in ("wp", "pq")
            for third in ("first", "last")
        },
    }


def label_words(run: icl.Analysis, learned: ReweightingResult) -> dict[str, str]:
    """Numbers of the guide to *Label Words are Anchors*."""
    predictions, read, flow = run.predictions, run.extraction, run.flow
    counts = predictions.predicted.bincount(minlength=len(predictions.labels))
    likeliest = int(counts.argmax())
    late = 2 * run.flow.values.shape[-1] // 3
    return {
        **of_flow(run),
        **answers(
            run,
            "flow",
            "isolation",
            "isolation_map",
            "extraction",
            "compare_compression",
            "confusion",
        ),
        "tokens": str(len(run.saliency_maps.tokens[0])),
        "accuracy_sentence": f"Its accuracy there is {shown(predictions.interval('accuracy'))}; "
        f"chance is {number(1 / len(predictions.labels))}.",
        "constant_sentence": f"{counts[likeliest]} of the {len(predictions.predicted)} answers are "
        f"`{predictions.labels[likeliest].strip()}`, so always giving it would keep "
        f"{number(float(counts[likeliest]) / len(predictions.predicted))}.",
        "late": str(late),
        "late_pq": shown(flow.interval("share", score="pq", layer=late)),
        "late_label": shown(flow.interval("target_share", src_role="label_word", layer=late)),
        "late_template": shown(flow.interval("target_share", src_role="format", layer=late)),
        "auc_first": shown(read.first_third),
        "auc_last": shown(read.last_third),
        "auc_rise": shown(read.rise, signed=True),
        "auc_sentence": f"Fewer than 5 answers are {' or '.join(read.rare)}, so these intervals are too "
        "narrow, and no verdict is given."
        if read.rare
        else "",
        "r_sentence": r_sentence(read),
        "plain": shown(learned.accuracy("plain")),
        "reweighted": shown(learned.accuracy("reweighted")),
        "reweighting_difference": shown(learned.difference("reweighted", "plain"), signed=True),
        **compressed(run.compare_compression),
        "confusion_layer": str(run.confusion.layer),
        "paper_plain": per_cent([published.reweighting_means()["1 per class"]]),
        "paper_reweighted": per_cent([published.reweighting_means()["anchor re-weighting"]]),
        "paper_speed_up": "GPT2-XL {} to {}, GPT-J {} to {} times".format(
            *(end(published.SPEED_UP[name]) for name in ("gpt2-xl", "gpt-j") for end in (min, max))
        ),
    }


def r_sentence(read: Any) -> str:
    """R in the middle of the model, or a note that it is not defined."""
    if not read.cumulative_defined:
        return f"not defined: its denominator, the sum of AUC − 0.5, is {shown(read.denominator)}"
    middle = len(read.auc) // 2 - 1
    return f"{shown(read.interval('cumulative', layer=middle))} after half of the layers"


def compressed(table: Any) -> dict[str, str]:
    """Length of the demonstrations, and how many of their tokens are kept."""
    kept = len(table.kept[0][0])
    return {
        "demonstration_tokens": str(round(kept / float(table.demonstration_share[0]))),
        "kept_tokens": str(kept),
    }


def isolation_table(run: icl.Analysis) -> str:
    """Loyalties by window for label words and random tokens."""
    result, rows = run.isolation, []
    for side in ("first", "last"):
        for depth in result.depths:
            row = [f"{side} {depth}"]
            for quantity in ("label_loyalty", "word_loyalty"):
                for tokens in ("label", "random"):
                    own = result.interval(quantity, side=side, depth=depth, tokens=tokens)
                    row.append(shown(own))
            rows.append(row)
    kinds = (f"{what}, {tokens}" for what in ("label loyalty", "word loyalty")
             for tokens in ("label words", "random tokens"))  # fmt: skip
    return table(("layers", *kinds), rows)


def compression_table(run: icl.Analysis) -> str:
    """Published and measured loyalty and accuracy by method."""
    own, paper = run.compare_compression, published.COMPRESSION["gpt2-xl"]
    columns = ("method", "label loyalty", "published", "word loyalty", "published", "accuracy",
               "published")  # fmt: skip
    rows = [
        [
            METHODS[name],
            shown(own.label_loyalty(name)),
            per_cent([paper[name].label_loyalty]),
            shown(own.word_loyalty(name)),
            per_cent([paper[name].word_loyalty]),
            shown(own.accuracy(name)),
            per_cent([paper[name].accuracy]),
        ]
        for name in own.methods
    ]
    return table(columns, rows) + "\n\nPublished: GPT2-XL, mean of the four tasks."


def overthinking(run: icl.Analysis) -> dict[str, str]:
    """Numbers of the guide to *Overthinking the Truth*."""
    layers, leaving, ablated = run.layer_accuracy, run.early_exit, run.ablation
    last = layers.scores.shape[-1] - 1
    found = run.false_induction
    matching = zip(found.prefix_matching, found.matching_low, found.matching_high, strict=True)
    heads = [f"{layer}.{head}: {shown(Interval(*map(float, ends)))}"
             for (layer, head), ends in zip(found.top, matching, strict=False)]  # fmt: skip
    paper = published.MEAN_ACCURACY
    draws, late = ablated.draws(), run["late_ablation"]
    return {
        **answers(
            run,
            "layer_accuracy",
            "context_accuracy",
            "early_exit",
            "head_scores",
            "matching_by_layer",
            "false_induction",
            "ablation",
        ),
        "n": str(len(layers.answers)),
        "true": shown(layers.interval("calibrated", side="true", layer=last)),
        "false": shown(layers.interval("calibrated", side="false", layer=last)),
        "gap": shown(layers.final_gap, signed=True),
        "critical_sentence": "no critical layer, because the interval of the final gap includes 0."
        if layers.critical is None
        else f"entry {shown(layers.critical)} of 0 to {last}.",
        "exit_false": shown(leaving.overthinking(side="false"), signed=True),
        "exit_true": shown(leaving.overthinking(side="true"), signed=True),
        "exit_layer": str(leaving.layer),
        "entries": str(last),
        "zeroed_n": str(late.scores.shape[-1]),
        "zeroed_plain": shown(late.interval("accuracy", condition="none", side="false")),
        "chosen_on": f"`{found.task}`",
        "heads": "; ".join(heads),
        "closed": shown(ablated.reduction("chosen heads")),
        "closed_random": "not defined"
        if not bool(draws.isfinite().all())
        else f"{number(float(draws.mean()))}, {len(draws)} draws from {number(float(draws.min()))} "
        f"to {number(float(draws.max()))}",
        "paper_true": per_cent([paper["true"]]),
        "paper_false": per_cent([paper["false"]]),
        "paper_gap": number(published.GAP["permuted"] / 100, signed=True),
        "paper_half": number(published.GAP["half_permuted"] / 100, signed=True),
        "paper_random": number(published.GAP["random"] / 100, signed=True),
        "paper_exit_false": number(published.EARLY_EXIT_CHANGE["false"] / 100, signed=True),
        "paper_exit_true": number(published.EARLY_EXIT_CHANGE["true"] / 100, signed=True),
        "paper_exit_layer": str(published.EARLY_EXIT_LAYER),
        "paper_heads": "; ".join(
            f"{layer}.{head}: {number(score)}"
            for (layer, head), score in published.PREFIX_MATCHING.items()
        ),
        "paper_closed": per_cent([published.GAP_REDUCTION["mean_of_ratios"]]),
        "paper_closed_means": per_cent([published.GAP_REDUCTION["ratio_of_means"]]),
        "paper_random_heads": per_cent([published.RANDOM_HEADS_GAP_REDUCTION]),
    }


def zeroed_rows(run: icl.Analysis) -> str:
    """Accuracy with false demonstrations by zeroed component."""
    late = run["late_ablation"]
    return table(
        ("accuracy with false demonstrations", "published", "here"),
        [
            [f"{name} zeroed", per_cent([value]),
             shown(late.interval("accuracy", condition=name, side="false"))]
            for name, value in published.LATE_COMPONENTS.items()
            if name in late.conditions
        ],
    )  # fmt: skip
