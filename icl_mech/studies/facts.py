"""Facts about a run on its page: model, task, prompts, demonstrations, versions."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from icl_mech.checking import shown
from icl_mech.measurements.predictions import Predictions
from icl_mech.models import known_models
from icl_mech.prompts import PromptBatch
from icl_mech.prompts.drawing import said_demonstrations
from icl_mech.reports import Fact
from icl_mech.results import Result

MANY = 6
"""Maximum number of classes whose prompts are counted one by one."""


def origin_of(results: Mapping[str, Result]) -> Mapping[str, Any]:
    """The provenance of the first result that names its model; empty if none does.

    Among several on parts of the same prompts, the one with the most prompts. Results chosen on prompts of
    another task do not count.
    """
    origins = [result.provenance for result in results.values() if "model" in result.provenance]
    names = [origin for origin in origins if "prompts" in origin]
    first, *_ = names or origins or [{}]
    same_task = [origin for origin in names if task_name(origin) == task_name(first)]
    return max(same_task or [first], key=_count)


def _count(origin: Mapping[str, Any]) -> int:
    return int(origin.get("prompts", {}).get("count") or 0)


def model_name(origin: Mapping[str, Any]) -> str:
    """The model's name without its owner."""
    return str(origin.get("model", {}).get("name", "")).rstrip("/").split("/")[-1]


def weights_name(origin: Mapping[str, Any]) -> str:
    """The published name of its weights, such as `SmolLM2-135M-Instruct`, if there is one."""
    name = model_name(origin)
    return next(
        (model.hub_id.split("/")[-1] for model in known_models() if model.name == name), name
    )


def task_name(origin: Mapping[str, Any]) -> str:
    """The task's name, or `prompts`."""
    return str(origin.get("prompts", {}).get("task", {}).get("name") or "prompts")


def facts(
    results: Mapping[str, Result], prompts: Sequence[PromptBatch], made: Mapping[str, Any]
) -> tuple[Fact, ...]:
    """The known facts about the run."""
    origin = origin_of(results)
    entries = (
        _model(origin),
        _task(origin.get("prompts", {}), prompts),
        _prompts(origin, results, prompts),
        _demonstrations(origin),
        Fact("Interventions", _interventions(origin)),
        _made(origin, made),
        _versions(origin.get("versions", {})),
    )
    return tuple(fact for fact in entries if fact.value)


def _model(origin: Mapping[str, Any]) -> Fact:
    info = origin.get("model", {})
    name, weights = str(info.get("name", "")), weights_name(origin)
    parts = [f"loaded as {name}" if weights != model_name(origin) else ""]
    if "n_layers" in info:
        parts.append(f"{info['n_layers']} layers × {info.get('n_heads', '?')} heads")
    parts.append(f"{info['weights_format']} weights" if info.get("weights_format") else "")
    parts.append("processed weights" if info.get("processed_weights") else "")
    named = {"revision": info.get("revision"), "digest": str(info.get("weights") or "")[:12]}
    parts += [f"{name} {value}" for name, value in named.items() if value]
    return Fact("Model", weights if parts[0] else name, _joined(parts))


def _task(source: Mapping[str, Any], prompts: Sequence[PromptBatch]) -> Fact:
    task = source.get("task", {})
    labels = list(task.get("labels", [])) or (list(prompts[0].labels) if prompts else [])
    name = str(task.get("name") or "custom prompts")
    if not source and not prompts:
        return Fact("Task", "")
    if source.get("answers") == "open":
        value = f"{name}, free-form answers"
        return Fact("Task", value, str(task.get("source", "")).split(";")[0])
    classes = f"{name}, {len(labels)} classes" if labels else name
    return Fact("Task", classes, str(task.get("source", "")).split(";")[0])


def _prompts(
    origin: Mapping[str, Any], results: Mapping[str, Result], prompts: Sequence[PromptBatch]
) -> Fact:
    source = origin.get("prompts", {})
    count = source.get("count", len(prompts[0]) if prompts else 0)
    if not count:
        return Fact("Prompts", "")
    pairs = "pairs of prompts" if "false_prompts" in origin else "prompts"
    value = f"{count} {pairs if count != 1 else pairs.replace('prompts', 'prompt')}"
    if source.get("answers") != "open":
        labels = source.get("task", {}).get("labels", [])
        value += _by_class(_answers(results, prompts), labels, prompts)
    parts = [f"seed {source['seed']}" if "seed" in source else ""]
    parts.append(f"{source['split']} split" if source.get("split") else "")
    return Fact("Prompts", value, _joined([*parts, *_written(source)]))


SCORES = {
    "sum": "label words scored as whole words, by log-probability",
    "mean": "label words scored as whole words, by log-probability per token",
}


def _written(source: Mapping[str, Any]) -> Iterator[str]:
    """How texts were tokenised and label words scored, if that differs from the default."""
    if "exact_tokens" in source:
        yield "tokenised piece by piece (version 0.2 or earlier)"
    yield SCORES.get(source.get("score", "first"), "")
    if chat := source.get("chat"):
        options = {**chat.get("template_kwargs", {}), "today": chat.get("today")}
        named = ", ".join(f"{name}={value}" for name, value in options.items() if value is not None)
        yield f"as a chat ({named})" if named else "as a chat"


def _answers(results: Mapping[str, Result], prompts: Sequence[PromptBatch]) -> list[int]:
    if prompts:
        return [int(a) for prompt in prompts[0] if (a := prompt.answer) is not None]
    predictions = next(
        (result for result in results.values() if isinstance(result, Predictions)), None
    )
    answers = getattr(predictions, "answers", None)
    return [] if answers is None else [int(a) for a in answers.tolist()]


def _by_class(answers: list[int], labels: Sequence[str], prompts: Sequence[PromptBatch]) -> str:
    names = list(labels) or (list(prompts[0].labels) if prompts else [])
    if not answers or not names:
        return ""
    counts = [Counter(answers)[label] for label in range(len(names))]
    if len(set(counts)) == 1:
        return f", {counts[0]} of each class"
    if len(counts) > MANY:
        return f", {min(counts)} to {max(counts)} of each class"
    return ": " + ", ".join(f"{count} {name}" for name, count in zip(names, counts, strict=True))


def _demonstrations(origin: Mapping[str, Any]) -> Fact:
    source, false = origin.get("prompts", {}), origin.get("false_prompts", {})
    count = said_demonstrations(source)
    if not count:
        return Fact("Demonstrations", "")
    kinds = [_labels(side) for side in (source, false) if side]
    labels = " and ".join(kind for kind in kinds if kind)
    value = count + (f", {labels} labels" if labels else "")
    shared = source.get("demonstrations")
    how = {"per_prompt": "drawn for each prompt"} | dict.fromkeys(
        ("shared", "given"), "one set for all prompts"
    )
    return Fact("Demonstrations", value, how.get(str(shared), ""))


def _interventions(origin: Mapping[str, Any]) -> str:
    """The interventions on the model; empty if there were none."""
    edits = [dict(edit) for edit in origin.get("interventions") or ()]
    return "; ".join(f"{edit.pop('intervention')} {shown(edit)}" for edit in edits)


def _labels(source: Mapping[str, Any]) -> str:
    kind, share = str(source.get("labels", "")).replace("_", " "), source.get("false_share")
    return kind if share is None else f"{kind} (each with probability {share:g})"


def _made(origin: Mapping[str, Any], made: Mapping[str, Any]) -> Fact:
    info = origin.get("model", {})
    date = made.get("date") or origin.get("date") or ""
    device = str(made.get("device") or info.get("device", ""))
    precise = _joined([device.upper() if device == "cpu" else device, str(info.get("dtype", ""))])
    text = _date(str(date)) if date else ""
    return Fact("Made", text or precise, precise if text else "")


def _date(text: str) -> str:
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return text
    return f"{when.day} {when:%B %Y}"


def _versions(versions: Mapping[str, Any]) -> Fact:
    library = versions.get("icl-mech")
    others = [f"{name} {version}" for name, version in versions.items() if name != "icl-mech"]
    return Fact("Versions", f"icl-mech {library}" if library else "", ", ".join(others))


def _joined(parts: Sequence[str]) -> str:
    return ", ".join(part for part in parts if part)
