"""The plain ways, written as a user without this package would write them."""

import torch
from torch.nn.functional import cross_entropy

from icl_mech import PromptBatch


def padded(prompts: PromptBatch, indices: list[int], bridge) -> tuple[torch.Tensor, torch.Tensor]:
    """Left-padded ids and attention mask, where the model is."""
    rows = [prompts[i].tokens for i in indices]
    width = max(map(len, rows))
    tokens = torch.zeros(len(rows), width, dtype=torch.long)
    mask = torch.zeros(len(rows), width, dtype=torch.long)
    for row, ids in enumerate(rows):
        tokens[row, width - len(ids) :] = torch.tensor(ids)
        mask[row, width - len(ids) :] = 1
    device = next(bridge.original_model.parameters()).device
    return tokens.to(device), mask.to(device)


def batches(prompts: PromptBatch, size: int) -> list[list[int]]:
    """Prompts of similar length, `size` at a time."""
    order = sorted(range(len(prompts)), key=lambda i: -len(prompts[i]))
    return [order[i : i + size] for i in range(0, len(order), size)]


def hugging_face_backward(bridge, prompts: PromptBatch, size: int) -> None:
    """The bare model: forward and backward to the activations, nothing read."""
    model = bridge.original_model
    trainable = [p for p in model.parameters() if p.requires_grad]
    for parameter in trainable:
        parameter.requires_grad_(False)
    for indices in batches(prompts, size):
        tokens, mask = padded(prompts, indices, bridge)
        embedded = model.get_input_embeddings()(tokens).detach().requires_grad_()
        logits = model(
            inputs_embeds=embedded, attention_mask=mask, use_cache=False, logits_to_keep=1
        ).logits[:, -1]
        labels = logits[:, prompts.label_tokens]
        cross_entropy(
            labels.float(), prompts.answers[indices].to(labels.device), reduction="sum"
        ).backward()
    for parameter in trainable:
        parameter.requires_grad_(True)


def hugging_face_forward(bridge, prompts: PromptBatch, size: int, *, kept: int = 0) -> None:
    """The bare model: no-grad forward with full logits, or those of the last `kept` tokens."""
    for indices in batches(prompts, size):
        tokens, mask = padded(prompts, indices, bridge)
        with torch.no_grad():
            bridge.original_model(tokens, attention_mask=mask, use_cache=False, logits_to_keep=kept)


def cached_lens(bridge, prompts: PromptBatch, size: int) -> torch.Tensor:
    """Label logits of every residual at the target, by `run_with_cache`."""
    result = torch.zeros(len(prompts), bridge.cfg.n_layers + 1, prompts.n_labels)
    names = [f"blocks.{layer}.hook_resid_post" for layer in range(bridge.cfg.n_layers)]
    names.insert(0, "blocks.0.hook_resid_pre")
    for indices in batches(prompts, size):
        tokens, mask = padded(prompts, indices, bridge)
        with torch.no_grad():
            _, cache = bridge.run_with_cache(
                tokens, attention_mask=mask, use_cache=False, names_filter=lambda n: n in names
            )
            for entry, name in enumerate(names):
                normed = bridge.ln_final(cache[name][:, -1:])
                result[indices, entry] = (
                    bridge.unembed(normed)[:, 0, prompts.label_tokens].float().cpu()
                )
    return result


def retained_flow(bridge, prompts: PromptBatch, size: int) -> torch.Tensor:
    """Flow sums by retaining every pattern and its gradient, then reducing."""
    result = torch.zeros(len(prompts), bridge.cfg.n_layers, 3)
    for indices in batches(prompts, size):
        tokens, mask = padded(prompts, indices, bridge)
        patterns = []

        def keep(pattern, hook, patterns=patterns):
            pattern.retain_grad()
            patterns.append(pattern)

        names = [f"blocks.{layer}.attn.hook_pattern" for layer in range(bridge.cfg.n_layers)]
        with bridge.hooks(fwd_hooks=[(name, keep) for name in names]):
            logits = bridge(tokens, attention_mask=mask, use_cache=False)[:, -1]
        labels = logits[:, prompts.label_tokens]
        cross_entropy(
            labels.float(), prompts.answers[indices].to(labels.device), reduction="sum"
        ).backward()
        width = tokens.shape[1]
        for layer, pattern in enumerate(patterns):
            saliency = (pattern * pattern.grad).sum(1).abs().detach()
            for row, i in enumerate(indices):
                offset = width - len(prompts[i])
                own = saliency[row, offset:, offset:].tril(-1)
                p, q = list(prompts[i].label_positions), prompts[i].target
                wp, pq = own[p].sum(), own[q, p].sum()
                result[i, layer] = torch.stack([wp, pq, own.sum() - wp - pq]).cpu()
        bridge.zero_grad(set_to_none=True)
    return result


def isolated_logits(bridge, prompts: PromptBatch, layers, positions, size: int) -> torch.Tensor:
    """Label logits with some rows cut off in some layers: one full run."""
    result = torch.zeros(len(prompts), prompts.n_labels)
    for indices in batches(prompts, size):
        tokens, mask = padded(prompts, indices, bridge)
        width = tokens.shape[1]

        def cut(scores, hook, indices=indices, width=width):
            for row, i in enumerate(indices):
                offset = width - len(prompts[i])
                for p in positions[i]:
                    scores[row, :, offset + p, : offset + p] = -torch.inf
            return scores

        names = [f"blocks.{layer}.attn.hook_attn_scores" for layer in layers]
        with torch.no_grad(), bridge.hooks(fwd_hooks=[(name, cut) for name in names]):
            logits = bridge(tokens, attention_mask=mask, use_cache=False)[:, -1]
        result[indices] = logits[:, prompts.label_tokens].float().cpu()
    return result


def reweighted_step(bridge, prompts: PromptBatch, beta: torch.Tensor, size: int) -> torch.Tensor:
    """Gradient of the loss with respect to beta by running the whole prompts."""
    beta = beta.clone().requires_grad_()
    for indices in batches(prompts, size):
        tokens, mask = padded(prompts, indices, bridge)
        width = tokens.shape[1]
        position = torch.tensor(
            [[width - len(prompts[i]) + p for p, _ in by_class(prompts, i)] for i in indices]
        )

        def scale(pattern, hook, position=position):
            layer = int(hook.name.split(".")[1])
            rows = torch.arange(len(position))[:, None]
            factor = beta[layer].exp()[None]
            edited = pattern.clone()
            row = pattern[rows, :, -1, position].transpose(1, 2) * factor
            edited[rows, :, -1, position] = row.transpose(1, 2)
            return edited

        names = [f"blocks.{layer}.attn.hook_pattern" for layer in range(bridge.cfg.n_layers)]
        with bridge.hooks(fwd_hooks=[(name, scale) for name in names]):
            logits = bridge(tokens, attention_mask=mask, use_cache=False)[:, -1]
        labels = logits[:, prompts.label_tokens]
        cross_entropy(
            labels.float(), prompts.answers[indices].to(labels.device), reduction="sum"
        ).backward()
    return beta.grad


def by_class(prompts: PromptBatch, i: int) -> list[tuple[int, int]]:
    """(position, class) of the label words, in class order (one demonstration per class)."""
    pairs = zip(prompts[i].label_positions, prompts[i].label_classes, strict=True)
    return sorted(pairs, key=lambda pair: pair[1])
