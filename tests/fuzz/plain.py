"""The plain path: a Hugging Face model in float64, one prompt at a time, attention written out.

Nothing of the package but the fields of prompts and interventions is used here: no cache, no padding,
no hooks of its. Every attention of the model is exchanged for `Attention`, which cuts, scales and reads.
"""

import copy
import math
from contextlib import ExitStack

import torch
from transformers import AttentionInterface

NAME = "fuzz_plain"


class Attention:
    """Softmax attention of one prompt, changed as the interventions say; keeps its patterns."""

    def __init__(self, prompt, interventions, number):
        self.prompt, self.interventions, self.number = prompt, interventions, number
        self.patterns = []

    def __call__(self, module, query, key, value, attention_mask, scaling=None, **options):
        layer = len(self.patterns)
        heads, length = query.shape[1], query.shape[2]
        key, value = (part.repeat_interleave(heads // part.shape[1], 1) for part in (key, value))
        scale = query.shape[-1] ** -0.5 if scaling is None else scaling
        scores = query @ key.transpose(-1, -2) * scale
        row, column = torch.arange(length)[:, None], torch.arange(length)[None]
        seen = column <= row
        if options.get("sliding_window"):
            seen = seen & (row - column < options["sliding_window"])
        scores = scores.masked_fill(~seen, -math.inf)
        for edit in self.of("Isolate"):
            if layer in edit.layers and edit.mode == "mask":
                for place in self.cut(edit):
                    scores = torch.where((row == place) & (column < place), -math.inf, scores)
        pattern = scores.softmax(-1).nan_to_num(0.0)
        for edit in self.interventions:
            pattern = self.edited(edit, layer, pattern, row, column)
        if pattern.requires_grad:
            pattern.retain_grad()
        self.patterns.append(pattern)
        out = (pattern @ value).transpose(1, 2)
        for edit in self.of("ZeroHeads"):
            for own, head in edit.heads:
                if own == layer and edit.kind == "zero_output":
                    kept = torch.ones_like(out)
                    kept[:, self.rows(edit), head] = 0
                    out = out * kept
        return out, None

    def of(self, name):
        return [edit for edit in self.interventions if type(edit).__name__ == name]

    def rows(self, edit):
        return slice(None) if edit.at == "all" else [self.prompt.target]

    def cut(self, edit):
        given = edit.positions
        return self.prompt.label_positions if given is None else given[self.number]

    def edited(self, edit, layer, pattern, row, column):
        kind, target = type(edit).__name__, self.prompt.target
        if kind == "Isolate" and layer in edit.layers and edit.mode == "zero":
            for place in self.cut(edit):
                pattern = torch.where((row == place) & (column < place), 0.0, pattern)
        if kind == "Reweight":
            factor = torch.zeros_like(pattern)
            for place, label in zip(
                self.prompt.label_positions, self.prompt.label_classes, strict=True
            ):
                factor[:, :, target, place] = edit.beta[layer, :, label].double()
            pattern = pattern * factor.exp()
        if kind == "ZeroHeads" and edit.kind == "uniform_attention":
            uniform = torch.where(column < row, 1 / (row + 1.0), 0.0).double()
            for own, head in edit.heads:
                if own == layer:
                    rows = torch.zeros_like(pattern, dtype=torch.bool)
                    rows[:, head, self.rows(edit)] = True
                    pattern = torch.where(rows, uniform, pattern)
        return pattern


_CURRENT = []


def _attend(*given, **options):
    return _CURRENT[-1](*given, **options)


AttentionInterface.register(NAME, _attend)


def parts_of(model):
    """Blocks, final norm, and the MLP of a block."""
    base = model.base_model
    blocks = next(getattr(base, name) for name in ("layers", "h") if hasattr(base, name))
    norms = ("norm", "ln_f", "final_layer_norm")
    return blocks, next(getattr(base, name) for name in norms if hasattr(base, name))


class Plain:
    """A float64 copy of a model."""

    def __init__(self, model):
        self.model = copy.deepcopy(model).double().eval()
        self.model.requires_grad_(False)
        self.model.set_attn_implementation(NAME)

    def run(self, prompt, interventions, number, gradient=False):
        """Logits at the target, residuals at the target entering each block and leaving the last,
        and patterns; with their gradients of the label loss if asked for."""
        attention = Attention(prompt, interventions, number)
        _CURRENT[:] = [attention]
        blocks, norm = parts_of(self.model)
        entering = []
        with ExitStack() as stack:
            stack.enter_context(torch.enable_grad() if gradient else torch.no_grad())
            for layer, block in enumerate(blocks):
                stack.callback(
                    block.register_forward_pre_hook(
                        lambda _, args, kwargs: entering.append(
                            args[0] if args else kwargs["hidden_states"]
                        ),
                        with_kwargs=True,
                    ).remove
                )
                for edit in attention.of("ZeroLayers"):
                    if layer >= edit.start:
                        stack.callback(self._zeroed(edit, block, prompt, entering, layer))
            embedded = self.model.get_input_embeddings()(torch.tensor([prompt.tokens])).detach()
            if gradient:
                embedded.requires_grad_()
            last = []
            handle = norm.register_forward_pre_hook(lambda _, args: last.append(args[0]))
            stack.callback(handle.remove)
            logits = self.model(inputs_embeds=embedded, use_cache=False).logits[0]
            found = {
                "logits": logits[prompt.target].detach(),
                "residuals": torch.stack(
                    [own[0, prompt.target].detach() for own in (*entering, last[0])]
                ),
                "patterns": [own.detach()[0] for own in attention.patterns],
            }
            if gradient:
                first = [words[0] for words in prompt.label_words]
                labels = logits[prompt.target][first]
                loss = torch.nn.functional.cross_entropy(
                    labels[None], torch.tensor([prompt.answer])
                )
                loss.backward()
                found["saliency"] = torch.stack(
                    [(own * own.grad).sum(1)[0].abs().detach() for own in attention.patterns]
                )
        return found

    def _zeroed(self, edit, block, prompt, entering, layer):
        rows = slice(None) if edit.at == "all" else [prompt.target]

        def hook(_, __, output):
            first = output[0] if isinstance(output, tuple) else output
            edited = first.clone()
            edited[:, rows] = entering[layer][:, rows] if edit.part == "block" else 0.0
            return (edited, *output[1:]) if isinstance(output, tuple) else edited

        part = block if edit.part == "block" else block.mlp
        return part.register_forward_hook(hook).remove

    def lens(self, residuals):
        """Logits of residuals through final norm and unembedding; the last entry is the model's."""
        with torch.no_grad():
            return self.model.get_output_embeddings()(parts_of(self.model)[1](residuals))


def flow(saliency, prompt):
    """S_wp, S_pq, S_ww of one prompt, by layer: means over their edges."""
    target, labels = prompt.target, list(prompt.label_positions)
    square = saliency[:, : target + 1, : target + 1].tril(-1)
    to_labels = square[:, labels].sum((1, 2))
    to_target = square[:, target, labels].sum(1)
    counts = sum(labels), len(labels)
    rest = target * (target + 1) // 2 - sum(counts)
    total = square.sum((1, 2))
    return torch.stack(
        [to_labels / counts[0], to_target / counts[1], (total - to_labels - to_target) / rest]
    )
