"""Plain Hugging Face in float64: one prompt at a time, eager attention, no cache, no padding.

Nothing of icl_mech is imported here. Attention is edited where every eager implementation calls the
softmax; everything else by hooks on the modules that Hugging Face names.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, log_softmax

ATTENTION_OUT = ("o_proj", "c_proj", "out_proj", "dense")
MLP_OUT = ("down_proj", "c_proj", "fc2", "fc_out", "dense_4h_to_h")


@dataclass
class Text:
    """A prompt as bare numbers.

    Attributes:
        tokens: Ids.
        target: Where the answer is read.
        positions: First tokens of the label words.
        classes: Which class each of them displays.
        words: Tokens of the label words, in class order.
        answer: True class.
        roles: Role of every token, in words.
    """

    tokens: list[int]
    target: int
    positions: list[int]
    classes: list[int]
    words: list[list[int]]
    answer: int | None
    roles: list[str] = field(default_factory=list)


class Edit:
    """A change of one pass; what it does not name stays."""

    def scores(self, layer: int, scores: Tensor, text: Text) -> Tensor:
        """Attention scores `[1, head, dest, src]` before the softmax."""
        return scores

    def pattern(self, layer: int, pattern: Tensor, text: Text) -> Tensor:
        """Attention after the softmax."""
        return pattern

    def install(self, plain: "Plain", text: Text, length: int) -> list[Any]:
        """Hooks on modules."""
        return []


@dataclass
class Cut(Edit):
    """Rows that see nothing before themselves: `rows[layer]`."""

    rows: dict[int, list[int]]
    mode: str

    def scores(self, layer, scores, text):
        if self.mode != "mask":
            return scores
        scores = scores.clone()
        for row in self.rows.get(layer, ()):
            scores[:, :, row, :row] = -torch.inf
        return scores

    def pattern(self, layer, pattern, text):
        if self.mode != "zero":
            return pattern
        keep = torch.ones_like(pattern)
        for row in self.rows.get(layer, ()):
            keep[:, :, row, :row] = 0
        return pattern * keep


@dataclass
class Hide(Edit):
    """Rows from `start` on see of what stands before it only what is kept."""

    start: int
    kept: list[int]

    def scores(self, layer, scores, text):
        gone = [column for column in range(self.start) if column not in self.kept]
        scores = scores.clone()
        scores[:, :, self.start :, gone] = -torch.inf
        return scores


@dataclass
class Scale(Edit):
    """The target's attention to label words times `exp(beta[layer, head, class])`."""

    beta: Tensor

    def pattern(self, layer, pattern, text):
        factors = torch.ones_like(pattern)
        for place, label in zip(text.positions, text.classes, strict=True):
            factors[0, :, text.target, place] = self.beta[layer, :, label].double().exp()
        return pattern * factors


@dataclass
class Heads(Edit):
    """Single heads: nothing, uniform attention, or given outputs `[head, d_head]`."""

    heads: list[tuple[int, int]]
    how: str
    at: str
    means: Tensor | None = None

    def pattern(self, layer, pattern, text):
        if self.how != "uniform_attention":
            return pattern
        chosen = [head for other, head in self.heads if other == layer]
        return uniform(pattern, chosen, rows(self.at, text, pattern.shape[2]))

    def install(self, plain, text, length):
        if self.how == "uniform_attention":
            return []
        places = rows(self.at, text, length)

        def change(number: int, head: int) -> Callable[..., Any]:
            def hook(module: Any, args: Any) -> Any:
                z = args[0].clone()
                flat = z.view(-1, plain.n_heads, z.shape[-1] // plain.n_heads)
                flat[places, head] = 0.0 if self.means is None else self.means[number].to(z)
                return (z, *args[1:])

            return hook

        return [
            plain.attention_out(layer).register_forward_pre_hook(change(number, head))
            for number, (layer, head) in enumerate(self.heads)
        ]


@dataclass
class Layers(Edit):
    """Blocks from `start` on, or a part of them, add nothing; `reference` as the papers' code."""

    start: int
    part: str = "block"
    how: str = "zero_output"
    at: str = "all"

    def pattern(self, layer, pattern, text):
        if self.part != "attention" or self.how != "reference" or layer < self.start:
            return pattern
        return uniform(pattern, range(pattern.shape[1]), rows(self.at, text, pattern.shape[2]))

    def install(self, plain, text, length):
        places = rows(self.at, text, length)

        def skip(module: Any, args: Any, kwargs: Any, output: Any) -> Any:
            first = output[0] if isinstance(output, tuple) else output
            entered = args[0] if args else kwargs["hidden_states"]
            first = first.clone()
            first[:, places] = entered[:, places]
            return (first, *output[1:]) if isinstance(output, tuple) else first

        def nothing(module: Any, args: Any, output: Tensor) -> Tensor:
            output = output.clone()
            output.view(-1, output.shape[-1])[places] = 0.0
            return output

        def no_input(module: Any, args: Any) -> Any:
            entered = args[0].clone()
            entered.view(-1, entered.shape[-1])[places] = 0.0
            return (entered, *args[1:])

        handles = []
        for layer in range(self.start, len(plain.blocks)):
            if self.part == "block":
                handles.append(plain.blocks[layer].register_forward_hook(skip, with_kwargs=True))
            elif self.part == "mlp" and self.how == "reference":
                handles.append(plain.mlp_out(layer).register_forward_pre_hook(no_input))
            elif self.part == "mlp":
                handles.append(plain.mlp_out(layer).register_forward_hook(nothing))
            elif self.how != "reference":
                handles.append(plain.attention_out(layer).register_forward_hook(nothing))
        return handles


@dataclass
class Seen:
    """What one pass gave.

    Attributes:
        logits: `[position, vocabulary]`.
        patterns: `[head, dest, src]` by layer, as edited.
    """

    logits: Tensor
    patterns: list[Tensor]


class Plain:
    """A model and where its parts are.

    Args:
        model: In evaluation mode, with eager attention; it becomes float64.
    """

    def __init__(self, model: Any) -> None:
        self.model = model.double()
        config = model.config.get_text_config()
        self.n_layers = config.num_hidden_layers
        self.n_heads = config.num_attention_heads
        self.blocks = self.blocks_of(model)
        self.parameters = dict(model.named_parameters())
        self.modules = dict(model.named_modules())

    @staticmethod
    def blocks_of(model: Any) -> torch.nn.ModuleList:
        """The blocks, in order."""
        return next(
            module
            for name, module in model.named_modules()
            if name.rpartition(".")[2] in ("h", "layers")
            and isinstance(module, torch.nn.ModuleList)
        )

    def attention_out(self, layer: int) -> torch.nn.Module:
        """The projection that heads enter."""
        return self._last(layer, ATTENTION_OUT, inside=True)

    def mlp_out(self, layer: int) -> torch.nn.Module:
        """The projection that leaves the MLP."""
        return self._last(layer, MLP_OUT, inside=False)

    def _last(self, layer: int, names: Sequence[str], *, inside: bool) -> torch.nn.Module:
        found = [
            module
            for name, module in self.blocks[layer].named_modules()
            if name.rpartition(".")[2] in names and ("att" in name) is inside
        ]
        assert len(found) == 1, (layer, names, found)
        return found[0]

    def run(
        self,
        text: Text,
        edits: Sequence[Edit] = (),
        *,
        then: Sequence[int] = (),
        grad: bool = False,
    ) -> Seen:
        """One pass over one prompt; `then`: cut behind the target and followed by these tokens."""
        tokens = [*text.tokens[: text.target + 1], *then] if then else text.tokens
        patterns: list[Tensor] = []

        def attend(layer: int, scores: Tensor) -> Tensor:
            for edit in edits:
                scores = edit.scores(layer, scores, text)
            pattern = scores.double().softmax(-1)
            for edit in edits:
                pattern = edit.pattern(layer, pattern, text)
            patterns.append(pattern)
            return pattern

        with ExitStack() as stack:
            for edit in edits:
                for handle in edit.install(self, text, len(tokens)):
                    stack.callback(handle.remove)
            stack.enter_context(_softmax(attend))
            stack.enter_context(torch.set_grad_enabled(grad))
            logits = self.model(torch.tensor([tokens]), use_cache=False).logits[0]
        assert len(patterns) == self.n_layers
        return Seen(logits, patterns)

    def label_logits(self, text: Text, edits: Sequence[Edit] = ()) -> Tensor:
        """Of the label words' first tokens, at the target."""
        return self.run(text, edits).logits[text.target, firsts(text)]

    def log_probs(self, text: Text, edits: Sequence[Edit], score: str) -> Tensor:
        """Of label words: of the first token, the whole word (`sum`) or per token (`mean`)."""
        rows = []
        for word in text.words:
            word = word[:1] if score == "first" else word
            logits = self.run(text, edits, then=word[:-1]).logits[text.target :]
            each = [log_softmax(logits[n], -1)[token] for n, token in enumerate(word)]
            rows.append(sum(each) / (len(word) if score == "mean" else 1))
        return torch.stack(rows)

    def lens(self, text: Text, edits: Sequence[Edit] = ()) -> Tensor:
        """`[layer + 1, vocabulary]`: the logits if the blocks from there on did nothing."""
        entries = [
            self.run(text, [*edits, Layers(start)]).logits[text.target]
            for start in range(self.n_layers)
        ]
        return torch.stack([*entries, self.run(text, edits).logits[text.target]])

    def attention(self, text: Text, edits: Sequence[Edit] = ()) -> Tensor:
        """`[layer, class]`: from the target to the label words of a class, summed over heads."""
        rows = []
        for pattern in self.run(text, edits).patterns:
            row = torch.zeros(len(text.words), dtype=torch.float64)
            for place, label in zip(text.positions, text.classes, strict=True):
                row[label] += pattern[0, :, text.target, place].sum()
            rows.append(row)
        return torch.stack(rows)

    def maps(self, text: Text, edits: Sequence[Edit], loss: str, reduction: str) -> Tensor:
        """Saliency `[layer, dest, src]` of the edited pattern."""
        seen = self.run(text, edits, grad=True)
        logits = seen.logits[text.target]
        labels = logits[firsts(text)]
        if loss == "vocab":
            value = cross_entropy(logits, torch.tensor(text.words[text.answer][0]))
        else:
            value = cross_entropy(
                labels, labels.argmax() if loss == "prediction" else torch.tensor(text.answer)
            )
        gradients = torch.autograd.grad(value, seen.patterns, allow_unused=True)
        found = []
        for pattern, gradient in zip(seen.patterns, gradients, strict=True):
            product = (pattern * (torch.zeros_like(pattern) if gradient is None else gradient))[0]
            one = product.sum(0).abs() if reduction == "sum_then_abs" else product.abs().sum(0)
            found.append(one.detach())
        return torch.stack(found)

    def means(self, texts: Sequence[Text], heads: Sequence[tuple[int, int]]) -> Tensor:
        """`[head, d_head]`: what heads give at the target, averaged over prompts."""
        total: list[Any] = [0.0] * len(heads)
        for text in texts:
            read: dict[int, Tensor] = {}
            with ExitStack() as stack:
                for layer in {layer for layer, _ in heads}:
                    hook = partial(self._keep, read, layer)
                    handle = self.attention_out(layer).register_forward_pre_hook(hook)
                    stack.callback(handle.remove)
                self.run(text)
            for number, (layer, head) in enumerate(heads):
                total[number] = total[number] + read[layer][text.target, head] / len(texts)
        return torch.stack(total)

    def _keep(self, read: dict[int, Tensor], layer: int, module: Any, args: Any) -> None:
        read[layer] = args[0].reshape(-1, self.n_heads, args[0].shape[-1] // self.n_heads)


def firsts(text: Text) -> list[int]:
    """First tokens of the label words."""
    return [word[0] for word in text.words]


def rows(at: str, text: Text, length: int) -> list[int]:
    """Where an edit acts."""
    return [text.target] if at == "target" else list(range(length))


def uniform(pattern: Tensor, heads: Sequence[int], places: Sequence[int]) -> Tensor:
    """Rows that attend to everything before them alike, to themselves not at all."""
    pattern = pattern.clone()
    for head, place in itertools.product(heads, places):
        pattern[:, head, place] = 0.0
        pattern[:, head, place, :place] = 1 / (place + 1)
    return pattern


@contextmanager
def _softmax(attend: Callable[[int, Tensor], Tensor]) -> Iterator[None]:
    """Context in which softmax over four dimensions is attention, layer after layer."""
    real, layers = torch.nn.functional.softmax, itertools.count()

    def softmax(values: Tensor, dim: int = -1, *args: Any, **kwargs: Any) -> Tensor:
        if values.ndim != 4:
            return real(values, dim, *args, **kwargs)
        return attend(next(layers), values)

    torch.nn.functional.softmax = softmax
    try:
        yield
    finally:
        torch.nn.functional.softmax = real
