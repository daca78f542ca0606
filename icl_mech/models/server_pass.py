"""Traces that are sent to a server: source text, plain values and tensors.

nnsight sends the source text of a `with` block and the values of its names, and a server need not have
this package installed. So the blocks below use nothing of it, no function, class or type, and repeat the
attention of `models/tracing.py`. Target rows and sums come back.
"""

from typing import Any

import nnsight
import torch

from icl_mech._typing import Tensor

Key = tuple[str, int]
"""Name and block of a site."""

Edit = tuple[Tensor, Tensor]
"""A mask of the entries to change, and their new values; both broadcast."""


def rows_on_server(
    model: Any,
    parts: dict[str, str],
    inputs: dict[str, Any],
    *,
    options: dict[str, Any],
    target: Tensor,
    reads: set[Key],
    edits: dict[Key, list[Edit]],
    flow: dict[str, Any] | None,
) -> dict[Any, Tensor]:
    """Run one pass for the target rows of some sites, and sums of the saliency of patterns.

    Args:
        model: nnsight's `LanguageModel`.
        parts: Names of the modules of the architecture, the fields of `Family`.
        inputs: Arguments of the wrapped model's `forward`.
        options: Options of nnsight's `trace` that say where it runs.
        target: Row of each prompt that is read.
        reads: Sites that are read.
        edits: Changes of sites, made in order before the site is read.
        flow: None, or `columns` (token ids the loss is over, or None: all), `classes` (the true one
            among them, or None: the predicted one), `reduction` and `edges` `[prompt, kind, dest, src]`,
            over which saliency is summed.

    Returns:
        `[prompt, ...]` of each site; under `"flow"` `[prompt, layer, kind]`.
    """
    with model.trace(**inputs, **options) as tracer:
        results: dict[Any, torch.Tensor] = {}
        patterns: list[tuple[torch.Tensor, torch.Tensor]] = []
        blocks = model
        for part in parts["blocks"].split("."):
            blocks = getattr(blocks, part)

        def through(name: str, layer: int, value: torch.Tensor) -> torch.Tensor:
            for where, new in edits.get((name, layer), ()):
                value = torch.where(where.to(value.device), new.to(value), value)
            if name == "pattern" and flow is not None:
                # The gradient of the added zeros is that of the pattern, even if nothing below requires one.
                moved = torch.zeros_like(value, requires_grad=True)
                patterns.append((value.detach(), moved))
                value = value + moved
            if (name, layer) in reads:
                prompt = torch.arange(len(target), device=value.device)
                row = target.to(value.device)
                inside = name in ("scores", "pattern")
                taken = value[prompt, :, row] if inside else value[prompt, row]
                results[name, layer] = taken.detach().cpu()
            return value

        for layer, block in enumerate(blocks):
            attention, mlp = getattr(block, parts["attention"]), getattr(block, parts["mlp"])
            out, down = getattr(attention, parts["out"]), getattr(mlp, parts["down"])
            named = {key[0] for key in [*reads, *edits] if key[1] == layer}
            if flow is not None:
                named.add("pattern")

            def attend(
                module: object,
                query: torch.Tensor,
                key: torch.Tensor,
                value: torch.Tensor,
                mask: torch.Tensor | None,
                scaling: float | None = None,
                *,
                layer: int = layer,
                **more: Any,
            ) -> tuple[torch.Tensor, torch.Tensor]:
                window = more.get("sliding_window") or key.shape[2]
                if mask.ndim != 4 if mask is not None else window < key.shape[2]:
                    raise ValueError("The server's attention does not support masks of this kind.")
                shared = query.shape[1] // key.shape[1]
                key, value = (seen.repeat_interleave(shared, dim=1) for seen in (key, value))
                scores = query @ key.transpose(-1, -2) * (scaling or query.shape[-1] ** -0.5)
                if mask is None:
                    square = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device)
                    mask = square.tril(scores.shape[-1] - scores.shape[-2])
                if mask.dtype == torch.bool:
                    scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
                else:
                    scores = scores + mask
                scores = through("scores", layer, scores)
                pattern = scores.softmax(-1, dtype=torch.float32).to(value.dtype)
                pattern = through("pattern", layer, pattern)
                z = (pattern @ value).transpose(1, 2).contiguous()
                return through("z", layer, z), pattern

            if "resid_pre" in named:
                block.input = through("resid_pre", layer, block.input)
            if named & {"scores", "pattern", "z"}:
                attention.source.ALL_ATTENTION_FUNCTIONS_get_interface_0.output = attend
            if "attn_out" in named:
                out.output = through("attn_out", layer, out.output)
            if "mlp_post" in named:
                down.input = through("mlp_post", layer, down.input)
            if "mlp_out" in named:
                mlp.output = through("mlp_out", layer, mlp.output)
            if "resid_post" in named:
                block.output = through("resid_post", layer, block.output)
        last = blocks[-1].output
        if flow is not None:
            norm = model
            for part in parts["norm"].split("."):
                norm = getattr(norm, part)
            row = last[torch.arange(len(target), device=last.device), target.to(last.device)]
            logits = model.lm_head(norm(row)).float()
            if flow["columns"] is not None:
                logits = logits.gather(1, flow["columns"].to(logits.device))
            classes = flow["classes"]
            classes = logits.argmax(-1) if classes is None else classes.to(logits.device)
            loss = torch.nn.functional.cross_entropy(logits, classes, reduction="sum")
            slopes = torch.autograd.grad(loss, [moved for _, moved in patterns])
            sums = []
            for (pattern, _), slope in zip(patterns, slopes, strict=True):
                product = pattern.float() * slope.float()
                if flow["reduction"] == "sum_then_abs":
                    saliency = product.sum(1).abs()
                else:
                    saliency = product.abs().sum(1)
                edges = flow["edges"].to(saliency)
                sums.append(torch.einsum("bds,bkds->bk", saliency, edges).cpu())
            results["flow"] = torch.stack(sums, 1)
        results = nnsight.save(results)
        tracer.stop()
    return dict(results)


def readout_of_server(
    model: Any, norm: str, token: Tensor, *, options: dict[str, Any]
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Weights of the final norm and of the unembedding."""
    with model.trace(input_ids=token, **options):
        part = model
        for name in norm.split("."):
            part = getattr(part, name)
        weights = [
            {name: value.detach().cpu() for name, value in module.state_dict().items()}
            for module in (part, model.lm_head)
        ]
        weights = nnsight.save(weights)
    norm_weights, head_weights = weights
    return norm_weights, head_weights


def logits_of_server(model: Any, tokens: Tensor, *, options: dict[str, Any]) -> Tensor:
    """Logits of the model on the server."""
    with model.trace(input_ids=tokens, **options):
        logits: torch.Tensor = nnsight.save(model.lm_head.output.detach().cpu())
    return logits.float()
