"""The autograd function that reduces an activation and its gradient in the backward pass."""

import torch


class Tap(torch.autograd.Function):
    """Passes an activation through; in the backward pass gives `sink` its reduction as gradient.

    `sink` is a tensor of zeros shaped like the reduction. Reading by the gradient of an
    input, not by a side effect, keeps the reading right when a pass is recomputed.
    """

    @staticmethod
    def forward(ctx, activation, sink, reduce):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN205
        """Save the activation through autograd, which frees it in time."""
        ctx.save_for_backward(activation)
        ctx.reduce = reduce
        return activation.view_as(activation)

    @staticmethod
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN205
        """The gradient goes on unchanged; its reduction is the sink's gradient."""
        (activation,) = ctx.saved_tensors
        return gradient, ctx.reduce(activation, gradient), None
