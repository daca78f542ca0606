"""Files of circuits that other tools write, read into a `Circuit`, and written for them.

* EAP-IG and the mechanistic interpretability benchmark (MIB): JSON with `cfg`, `nodes` (`a0.h1`, `m0`, `input`) and `edges`
  (`a0.h1->m2`, `input->a0.h0<q>`), each with `score` and `in_graph`; or the same as tensors in a `.pt` file.
* auto-circuit: JSON that maps names of edges (`A0.1->MLP 2`, `Resid Start->A0.0.Q`) to scores, or a list of names.
* ACDC: JSON list of `[[receiver, index, sender, index], score]` with hook names of TransformerLens, as its `save_edges`
  pickles it. Pickled files are rejected: reading one runs the code in it.

Scores are finite numbers; only the nodes of EAP-IG may have NaN, which it writes where it scored none. Edges that no model of
this depth has (such as `m2->m0`) are rejected.

EAP-IG gives every query head its own edges to keys and values; where heads share these, the scores of a group are added,
and an edge is in the circuit if it is for any of them.
"""

import json
import re
from collections.abc import Iterable, Mapping
from math import isfinite, isnan
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import torch

from icl_mech._typing import Tensor
from icl_mech.checking import Called, checked, shown
from icl_mech.errors import RunError
from icl_mech.measurements.causal.tracing import edges_of, reader_names, writer_names
from icl_mech.measurements.circuits.graph import Circuit, Components
from icl_mech.models import ModelInfo, adapt

NEEDED = ("cfg", "nodes", "edges")
TENSORS = ("cfg", "src_nodes", "dst_nodes", "edges_scores", "edges_in_graph", "nodes_in_graph")
SIZES = ("n_layers", "n_heads", "d_model")

Pair = tuple[str, str]
"""A writer and a reader."""


class Entry(NamedTuple):
    """A node or an edge of a file.

    Attributes:
        name: Its name in the file.
        where: The writer, and for edges the reader.
        score: None if it has none.
        kept: None if the file does not say.
    """

    name: str
    where: tuple[str, ...]
    score: float | None
    kept: bool | None


@checked(RunError)
def read_circuit(
    path: Annotated[str | Path, Called("the path of a circuit's JSON or .pt file")], model: object
) -> Circuit:
    """Read a circuit that another tool has written.

    Args:
        path: The file; see the top of this module for the formats.
        model: The model it belongs to, or its `ModelInfo`.

    Raises:
        RunError: no such file, a format that is not one of these, a damaged file, names or edges the model does not have,
            scores that are not finite, or sizes of another model.
    """
    place, info = Path(path), model if isinstance(model, ModelInfo) else adapt(model).info
    if place.is_dir():
        raise RunError(
            f"{str(path)!r} is a folder; give the path of a circuit's JSON or .pt file in it."
        )
    if not place.is_file():
        raise RunError(
            f"There is no file {str(path)!r}; give the path of a circuit's JSON or .pt file."
        )
    if place.suffix in (".pkl", ".pickle", ".pth"):
        raise RunError(
            f"{place.name} is a pickle, and reading one runs the code in it. Write the edges as JSON in the tool that "
            "made it."
        )
    document = _tensors(place) if place.suffix == ".pt" else _json(place)
    if isinstance(document, Mapping) and "cfg" in document:
        for name in NEEDED:
            if name not in document:
                raise RunError(f"{place.name} has no {name!r}; EAP-IG writes {', '.join(NEEDED)}.")
            if not isinstance(document[name], Mapping):
                raise RunError(
                    f"{name!r} in {place.name} is {shown(document[name])}; expected a mapping, as EAP-IG writes it."
                )
        _check_sizes(document["cfg"], info, place.name)
        edges = [_of_graph(name, entry, place.name, 2) for name, entry in document["edges"].items()]
        nodes = [
            _of_graph(name, entry, place.name, 1)
            for name, entry in document["nodes"].items()
            if name != "logits"
        ]
        scored_nodes = any(entry.score is not None for entry in nodes)
        used = nodes if scored_nodes or not edges else edges
        if not used:
            raise RunError(f"{place.name} holds no node and no edge; expected those of a model.")
        return _circuit(used, info, place.name, bool(document["cfg"].get("parallel_attn_mlp")))
    if isinstance(document, Mapping):
        entries = [
            Entry(name, _of_auto_circuit(name), _score(score, name), None)
            for name, score in document.items()
        ]
    elif (
        isinstance(document, list) and document and all(isinstance(name, str) for name in document)
    ):
        entries = [Entry(name, _of_auto_circuit(name), None, True) for name in document]
    elif isinstance(document, list) and document:
        entries = [entry for item in document if (entry := _of_acdc(item)) is not None]
    else:
        entries = []
    if not entries:
        raise RunError(
            f"{place.name} holds no edge; expected a graph of EAP-IG or MIB (cfg, nodes, edges), edges of auto-circuit by "
            "name, or a list of edges of ACDC."
        )
    return _circuit(entries, info, place.name)


@checked(RunError)
def write_circuit(
    circuit: Annotated[Circuit, Called("a Circuit, as read_circuit returns")],
    path: str | Path,
    model: object,
    *,
    parallel: bool = False,
) -> Path:
    """Write a circuit as the JSON that EAP-IG and MIB read.

    Where query heads share keys and values, each edge to them is written for every query head of the group, with an equal
    part of its score.

    Args:
        circuit: The circuit; without `kept`, every `in_graph` is false.
        path: The file.
        model: The model it belongs to, or its `ModelInfo`.
        parallel: The MLP of a block does not see the output of its attention.

    Raises:
        RunError: not a circuit, one of another model, an edge the model does not have, or a path that cannot be written.
    """
    info = model if isinstance(model, ModelInfo) else adapt(model).info
    circuit.check(info, parallel=parallel)
    cfg = {
        "n_layers": info.n_layers,
        "n_heads": info.n_heads,
        "parallel_attn_mlp": parallel,
        "d_model": info.d_model,
    }
    edges = _edges(circuit, info, parallel) if circuit.level == "edges" else {}
    used = {name.split("->")[0] for name, edge in edges.items() if edge["in_graph"]}
    nodes: dict[str, dict[str, Any]] = {"logits": {"in_graph": True}}
    for row, writer in enumerate(writer_names(info)):
        name = _node_name(writer)
        nodes[name] = {"in_graph": name in used}
        if circuit.level == "nodes":
            nodes[name] = _entry(circuit.scores, circuit.kept, row)
    place = Path(path)
    try:
        place.write_text(json.dumps({"cfg": cfg, "nodes": nodes, "edges": edges}), encoding="utf-8")
    except OSError as error:
        raise RunError(f"{str(path)!r} cannot be written: {error}.") from error
    return place


def _entry(
    scores: Tensor | None, kept: Tensor | None, place: int, parts: int = 1
) -> dict[str, Any]:
    """Score and choice of a component; 0 without a score."""
    score = 0.0 if scores is None else float(scores[place].nan_to_num(0.0)) / parts
    return {"score": score, "in_graph": kept is not None and bool(kept[place])}


def _edges(circuit: Circuit, info: ModelInfo, parallel: bool) -> dict[str, dict[str, Any]]:
    """All edges by EAP-IG's names."""
    parts = Components.of(info, "edges", parallel=parallel)
    scores, kept = parts.scores(circuit), parts.kept(circuit)
    shared = info.n_heads // info.n_kv_heads
    edges: dict[str, dict[str, Any]] = {}
    for number, name in enumerate(parts.names):
        names = list(_to_graph(name, shared))
        edges |= dict.fromkeys(names, _entry(scores, kept, number, len(names)))
    return edges


def _json(place: Path) -> Any:
    try:
        return json.loads(place.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise RunError(f"{place.name} is not JSON: {error}.") from error


def _tensors(place: Path) -> dict[str, Any]:
    """A `.pt` file of EAP-IG as the mapping of its JSON."""
    try:
        held = torch.load(place, weights_only=True)
    except Exception as error:
        raise RunError(
            f"{place.name} cannot be read as tensors ({type(error).__name__}); it is damaged, or not a graph that EAP-IG "
            f"wrote ({', '.join(TENSORS)})."
        ) from error
    if not isinstance(held, Mapping):
        raise RunError(
            f"{place.name} holds {shown(held)}; expected a graph of EAP-IG ({', '.join(TENSORS)})."
        )
    for name in TENSORS:
        if name not in held:
            raise RunError(f"{place.name} has no {name!r}; EAP-IG writes {', '.join(TENSORS)}.")
    if not isinstance(held["cfg"], Mapping):
        raise RunError(
            f"'cfg' in {place.name} is {shown(held['cfg'])}; expected a mapping, as EAP-IG writes it."
        )
    sources, readers = (_names(held, name, place.name) for name in ("src_nodes", "dst_nodes"))
    size = [len(sources), len(readers)]
    scores, kept = (
        _entries(held, name, size, place.name) for name in ("edges_scores", "edges_in_graph")
    )
    nodes = {
        name: {"in_graph": bool(inside)}
        for name, inside in zip(
            sources, _entries(held, "nodes_in_graph", size[:1], place.name), strict=True
        )
    }
    if held.get("nodes_scores") is not None:
        by_node = _entries(held, "nodes_scores", size[:1], place.name)
        for name, score in zip(sources, by_node, strict=True):
            nodes[name]["score"] = score
    edges = {
        f"{source}->{reader}": {"score": scores[row][column], "in_graph": kept[row][column]}
        for row, source in enumerate(sources)
        for column, reader in enumerate(readers)
        if _precedes(source, reader, bool(held["cfg"].get("parallel_attn_mlp")))
    }
    return {"cfg": held["cfg"], "nodes": nodes, "edges": edges}


def _names(held: Mapping[str, Any], name: str, file: str) -> list[str]:
    """Names of nodes, each once."""
    names = held[name]
    if not isinstance(names, list | tuple) or len({*map(str, names)}) < len(names):
        raise RunError(f"{name!r} in {file} is {shown(names)}; expected a list of different names.")
    for node in names:
        _ = _from_graph(str(node), str(node))
    return [*map(str, names)]


def _entries(held: Mapping[str, Any], name: str, size: list[int], file: str) -> list[Any]:
    """The numbers of a tensor with an entry for each node, or each pair of them."""
    tensor = held[name]
    if not isinstance(tensor, Tensor) or list(tensor.shape) != size:
        raise RunError(
            f"{name!r} in {file} is {shown(tensor)}; expected a tensor with the axes {size}, as many as there are nodes "
            "(src_nodes, dst_nodes)."
        )
    return tensor.tolist()


def _precedes(source: str, reader: str, parallel: bool) -> bool:
    """True if EAP-IG's graph has an edge between these."""
    if source == "input" or reader == "logits":
        return True
    if source == "logits" or reader == "input":
        return False
    layer, later = (int(re.findall(r"\d+", name)[0]) for name in (source, reader))
    within = layer == later and source[0] == "a" and reader[0] == "m" and not parallel
    return layer < later or within


def _check_sizes(cfg: Mapping[str, Any], info: ModelInfo, name: str) -> None:
    for size in SIZES:
        if size in cfg and cfg[size] != getattr(info, size):
            raise RunError(
                f"{name} is a circuit of a model with {size} = {shown(cfg[size])}, but {info.name!r} has "
                f"{getattr(info, size)}."
            )


def _score(value: object, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RunError(f"The score of {name!r} is {shown(value)}; expected a number.")
    if not isfinite(value):
        raise RunError(f"The score of {name!r} is {shown(value)}; expected a finite number.")
    return float(value)


def _of_graph(name: str, entry: object, file: str, parts: int) -> Entry:
    """A node or an edge of EAP-IG, which have one part and two."""
    if isinstance(entry, bool):
        entry = {"in_graph": entry}
    if not isinstance(entry, Mapping) or not ("score" in entry or "in_graph" in entry):
        raise RunError(f"{name!r} in {file} is {shown(entry)}; expected score and in_graph.")
    if "neurons" in entry:
        raise RunError(
            f"{file} has circuits of single neurons; only nodes and edges are supported."
        )
    score = entry.get("score")
    if parts == 1 and isinstance(score, float) and isnan(score):
        score = None
    kept = entry.get("in_graph")
    where = tuple(_from_graph(part, name) for part in name.split("->"))
    if len(where) != parts:
        raise RunError(
            f"{name!r} in {file} has {len(where)} parts joined by '->'; a node has one, and an edge two."
        )
    return Entry(
        name,
        where,
        None if score is None else _score(score, name),
        None if kept is None else bool(kept),
    )


_GRAPH = re.compile(
    r"(?P<attn>a(?P<layer>\d+)\.h(?P<head>\d+)(<(?P<letter>[qkv])>)?)|m(?P<mlp>\d+)|input|logits"
)


def _from_graph(part: str, name: str) -> str:
    """Our name of a node of EAP-IG: `a0.h1` is `0.1`, `a0.h1<q>` is `0.1 q`."""
    match = _GRAPH.fullmatch(part)
    if match is None:
        raise RunError(
            f"{name!r} is no node or edge of EAP-IG; expected such as 'a0.h1->m2' or 'input->a0.h0<q>'."
        )
    if match["attn"]:
        letter = f" {match['letter']}" if match["letter"] else ""
        return f"{match['layer']}.{match['head']}{letter}"
    return f"mlp {match['mlp']}" if match["mlp"] else {"input": "embed"}.get(part, part)


def _node_name(writer: str) -> str:
    if writer == "embed":
        return "input"
    if writer.startswith("mlp"):
        return f"m{writer.split()[1]}"
    layer, head = writer.split(".")
    return f"a{layer}.h{head}"


def _to_graph(name: str, shared: int) -> Iterable[str]:
    """EAP-IG's names of an edge: one for each query head that shares the key or value."""
    writer, reader = name.split(" > ")
    if reader == "logits" or reader.startswith("mlp"):
        return [f"{_node_name(writer)}->{reader if reader == 'logits' else _node_name(reader)}"]
    head_name, letter = reader.split(" ")
    layer, head = head_name.split(".")
    heads = [int(head)] if letter == "q" else range(int(head) * shared, (int(head) + 1) * shared)
    return [f"{_node_name(writer)}->a{layer}.h{number}<{letter}>" for number in heads]


_AUTO = re.compile(r"A(\d+)\.(\d+)(?:\.([QKV]))?|MLP (\d+)|Resid Start|Resid End")


def _of_auto_circuit(name: str) -> Pair:
    parts = name.split("->")
    matches = [_AUTO.fullmatch(part) for part in parts]
    if len(parts) != 2 or None in matches:
        raise RunError(
            f"{name!r} is no edge of auto-circuit; expected such as 'A0.1->MLP 2' or 'Resid Start->A0.0.Q'."
        )
    names = []
    for part, match in zip(parts, matches, strict=True):
        layer, head, letter, mlp = match.groups() if match else (None,) * 4
        if layer is not None:
            names.append(f"{layer}.{head}" + (f" {letter.lower()}" if letter else ""))
        else:
            names.append(
                f"mlp {mlp}" if mlp else {"Resid Start": "embed", "Resid End": "logits"}[part]
            )
    return names[0], names[1]


_HOOKS = (
    (re.compile(r"blocks\.0\.hook_resid_pre|hook_embed"), "embed"),
    (re.compile(r"blocks\.(\d+)\.attn\.hook_result"), "{0}.{head}"),
    (re.compile(r"blocks\.(\d+)\.hook_mlp_out"), "mlp {0}"),
    (re.compile(r"blocks\.(\d+)\.hook_([qkv])_input"), "{0}.{head} {1}"),
    (re.compile(r"blocks\.(\d+)\.hook_mlp_in"), "mlp {0}"),
    (re.compile(r"blocks\.(\d+)\.hook_resid_post"), "logits"),
)


def _of_acdc(item: object) -> Entry | None:
    """An edge of ACDC; None for its edges inside a head or an MLP, which are no edges of the residual stream."""
    try:
        if not isinstance(item, list):
            raise TypeError("no list")
        (receiver, receiver_index, sender, sender_index), score = item
        names = [_of_hook(sender, sender_index), _of_hook(receiver, receiver_index)]
    except (TypeError, ValueError) as error:
        raise RunError(
            f"{shown(item)} is no edge of ACDC; expected [[receiver, index, sender, index], score]."
        ) from error
    if None in names:
        return None
    return Entry(
        str(item),
        tuple(str(name) for name in names),
        None if score is None else _score(score, str(sender)),
        True,
    )


def _of_hook(hook: str, index: object) -> str | None:
    head = index[-1] if isinstance(index, list) and index else None
    for pattern, name in _HOOKS:
        if match := pattern.fullmatch(hook):
            return name.format(*match.groups(), head=head)
    return None


def _circuit(entries: list[Entry], info: ModelInfo, origin: str, parallel: bool = False) -> Circuit:
    """The circuit of entries that are all nodes, or all edges."""
    edges = len(entries[0].where) == 2
    writers = {name: row for row, name in enumerate(writer_names(info))}
    readers = {name: column for column, name in enumerate(reader_names(info))}
    sizes = (len(writers), len(readers)) if edges else (len(writers),)
    scores = torch.full(sizes, torch.nan, dtype=torch.float64)
    kept = torch.zeros(sizes, dtype=torch.bool)
    possible = edges_of(info, parallel=parallel) if edges else torch.ones(sizes, dtype=torch.bool)
    for entry in entries:
        try:
            columns = [readers[_shared(reader, info)] for reader in entry.where[1:]]
            place = (writers[entry.where[0]], *columns)
        except KeyError as error:
            raise RunError(
                f"{entry.name!r} in {origin} does not exist in {info.name!r}, which has {info.n_layers} layers with "
                f"{info.n_heads} heads each."
            ) from error
        if not bool(possible[place]):
            raise RunError(
                f"{entry.name!r} in {origin} is no edge of {info.name!r}{' with parallel blocks' if parallel else ''}: an "
                "edge leads from a node to a later one that sees its output."
            )
        if entry.score is not None:
            scores[place] = scores[place].nan_to_num(0.0) + entry.score
        kept[place] |= bool(entry.kept)
    chosen = kept if bool(kept.any()) and any(entry.kept is not None for entry in entries) else None
    any_score = any(entry.score is not None for entry in entries)
    return Circuit("edges" if edges else "nodes", scores if any_score else None, chosen, origin)


def _shared(reader: str, info: ModelInfo) -> str:
    """The reader by key-value head."""
    if reader.endswith((" k", " v")):
        name, letter = reader.split(" ")
        layer, head = name.split(".")
        if int(head) >= info.n_heads:
            return ""
        return f"{layer}.{int(head) * info.n_kv_heads // info.n_heads} {letter}"
    return reader
