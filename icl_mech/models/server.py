"""A model whose weights stay on a server that runs nnsight's traces (NDIF, or your own server).

A pass is one request. Prompts and edits are sent as tensors; the target rows of the sites read, and sums
over edges of the saliency of patterns, come back. The final norm and the unembedding are fetched once, so
that logits are computed here.
"""

import copy
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from operator import attrgetter
from typing import Any

import torch

from icl_mech._typing import Bool, Float, Int, Tensor
from icl_mech.errors import ModelError
from icl_mech.models.checks import TOLERANCE, check_eval_mode
from icl_mech.models.interface import ForwardInput, ForwardOutput, Hook, Site, SiteName
from icl_mech.models.nnsight import NnsightModel, info_of, is_nnsight

SITES: frozenset[SiteName] = frozenset(
    {"resid_pre", "scores", "pattern", "z", "attn_out", "mlp_out", "resid_post"}
)
"""Sites that are available on a server."""

Edit = tuple[Bool[Tensor, "..."], Float[Tensor, "..."]]
"""A mask of the entries to change, and their new values; both broadcast."""


@dataclass(frozen=True, eq=False)
class SaliencySums:
    """Sums over edges of the saliency `|A * dL/dA|` of every block's pattern `A`.

    Attributes:
        columns: Token ids over whose logits the loss is computed; None: the vocabulary.
        classes: The true class among them; None: the one with the largest logit.
        reduction: `sum_then_abs` or `abs_then_sum` over heads.
        edges: 1 at the edges of each kind.
    """

    columns: Int[Tensor, "batch label"] | None
    classes: Int[Tensor, " batch"] | None
    reduction: str
    edges: Float[Tensor, "batch kind dest src"]


@dataclass(repr=False)
class ServerModel(NnsightModel):
    """A model on a server, as returned by `remote_model`."""

    where: bool | str = True

    def at_target(
        self,
        tokens: Int[Tensor, "batch pos"],
        mask: Bool[Tensor, "batch pos"],
        positions: Int[Tensor, "batch pos"],
        target: Int[Tensor, " batch"],
        *,
        reads: Sequence[Site],
        edits: Mapping[Site, Sequence[Edit]],
        sums: SaliencySums | None = None,
    ) -> tuple[dict[Site, Tensor], Float[Tensor, "batch layer kind"] | None]:
        """Send one request, for the target rows of some sites and for saliency sums.

        Args:
            tokens: Ids of whole prompts.
            mask: True at real tokens.
            positions: Position index of each token.
            target: Row of each prompt that is read.
            reads: Sites that are read, after their edits.
            edits: Changes, in order.
            sums: Sums of the saliency of patterns, if any.

        Raises:
            ModelError: a site that is not available there, or an error of the server.
        """
        for site in [*reads, *edits]:
            self._check_site(site)
        inputs = {
            "input_ids": tokens,
            "attention_mask": mask.long(),
            "position_ids": positions,
            "use_cache": False,
        }
        answer = self._asked(
            "rows_on_server",
            asdict(self.family),
            inputs,
            target=target,
            reads={tuple(site) for site in reads},
            edits={tuple(site): list(changes) for site, changes in edits.items()},
            flow=None if sums is None else vars(sums),
        )
        total = answer.pop("flow", None)
        return {Site(*key): value for key, value in answer.items()}, total

    def _asked(self, name: str, *args: object, **kwargs: object) -> Any:
        """The result of a function of `models/server_pass.py`, run on the server."""
        from nnsight.intervention.backends.remote import RemoteBackend

        from icl_mech.models import server_pass

        try:
            options = {"remote": self.where}
            if self.where not in (True, "local"):
                options = {"backend": RemoteBackend(self.wrapped.to_model_key(), host=self.where)}
            with torch.enable_grad():  # needed if the server is this process
                return getattr(server_pass, name)(self.wrapped, *args, options=options, **kwargs)
        except _failures() as error:
            raise ModelError(
                f"{self.info.name!r} could not be run on the server ({self.where}): {error} Check that "
                "it is up and has this model (nnsight.ndif_status()), and NDIF_API_KEY."
            ) from error

    def has_site(self, name: SiteName) -> bool:
        """True for the sites in `SITES`."""
        return name in SITES

    @property
    def splits(self) -> bool:
        """False: keys and values stay on the server."""
        return False

    def own_logits(self, tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch pos d_vocab"]:
        """Logits of the model on the server."""
        logits: Tensor = self._asked("logits_of_server", tokens)
        return logits

    @cached_property
    def _readout(self) -> tuple[Any, Any]:
        """Final norm and unembedding, fetched from the server."""
        token = torch.zeros(1, 1, dtype=torch.long)
        weights = self._asked("readout_of_server", self.family.norm, token)
        module: Any = self.module
        parts = attrgetter(self.family.norm)(module), module.get_output_embeddings()
        norm, head = (_filled(part, state) for part, state in zip(parts, weights, strict=True))
        return norm, head

    @property
    def _norm(self) -> Any:
        return self._readout[0]

    @property
    def _head(self) -> Any:
        return self._readout[1]

    def _forward(self, asked: ForwardInput) -> ForwardOutput:
        """Not supported: only the target rows come back."""
        raise self._refused("whole passes")

    def installed(self, hooks: Sequence[Hook]) -> AbstractContextManager[None]:
        """Not supported: functions are not sent."""
        raise self._refused("hooks")

    def head_weights(self, layer: int) -> tuple[Tensor, Tensor | None]:
        """Not supported: only the unembedding is fetched."""
        raise self._refused("the weights of single heads")

    @property
    def settings(self) -> str:
        """Empty: the settings are on the server and not known."""
        return ""

    def fingerprint(self, *, exact: bool = False) -> str:
        """The name and revision requested; the weights are not read."""
        return f"on a server: {self.info.name}@{self.info.revision}"

    def _refused(self, what: str) -> ModelError:
        return ModelError(
            f"The weights of {self.info.name!r} are on a server, which returns rows at the "
            f"target, not {what}. Load the model here: nnsight.LanguageModel(name, dispatch=True)."
        )


def remote_model(
    model: Any, where: bool | str = True, *, revision: str | None = None
) -> ServerModel:
    """A model on a server, for every function that takes a model.

    It supports measurements that read the target rows only: `predict`, `logit_lens`, `isolation`,
    `head_scores`, and `flow_scores`, whose sums are computed there. All others are rejected.

    Args:
        model: nnsight's `LanguageModel(name)`, whose weights need not be loaded.
        where: True: NDIF, with the key in `NDIF_API_KEY`. A URL: another server. `"local"`: this
            process, with everything serialised as for a server; to try things out.
        revision: Recorded in provenance.

    Raises:
        ModelError: not an nnsight `LanguageModel`, an unsupported architecture, a server that does
            not answer, or values that fail a check.
    """
    if not (is_nnsight(model) and hasattr(model, "to_model_key")):
        raise ModelError(
            f"Expected nnsight.LanguageModel(name), got a {type(model).__name__}, which cannot be "
            "run on a server."
        )
    if not (where in (True, "local") or str(where).startswith(("http://", "https://"))):
        raise ModelError(f"where={where!r} is neither True (NDIF), a URL, nor 'local'.")
    if next(model._module.parameters()).is_meta:
        model._module.eval()  # like the model on the server
    info = replace(
        info_of(model, revision=revision), device="cpu", notes=(f"on a server: {where}",)
    )
    adapted = ServerModel(model, info, getattr(model, "tokenizer", None), where=where)
    check_eval_mode(adapted.module)
    _check(adapted)
    return adapted


def _failures() -> tuple[type[Exception], ...]:
    """Exceptions that a request raises, in nnsight 0.8 and 0.6."""
    from httpx import HTTPError
    from nnsight.intervention.backends import remote

    if hasattr(remote, "RemoteError"):
        from websocket import WebSocketException

        return remote.RemoteError, HTTPError, WebSocketException, OSError
    from socketio.exceptions import SocketIOError

    return remote.RemoteException, HTTPError, SocketIOError, OSError


def _filled(part: torch.nn.Module, weights: dict[str, Tensor]) -> torch.nn.Module:
    """A copy of a module with these weights, free of nnsight's wrapper around `forward`."""
    copied = copy.deepcopy(part)
    vars(copied).pop("forward", None)
    copied.load_state_dict(weights, assign=True)
    return copied.requires_grad_(False)


def _check(model: ServerModel) -> None:
    """Check readout, attention rows, edits and padding, as `icl_mech.models.checks` does for local models.

    Raises:
        ModelError: says what was found and what was expected.
    """
    ids = torch.randint(0, model.info.d_vocab, (1, 11), generator=torch.Generator().manual_seed(0))
    last, pattern = Site("resid_post", model.info.n_layers - 1), Site("pattern", 0)
    everything = torch.ones(1, 1, 1, 1, dtype=torch.bool), torch.zeros(1, 1, 1, 1)

    def rows(
        padding: int, edits: Mapping[Site, Sequence[Edit]]
    ) -> tuple[Float[Tensor, "batch d_vocab"], Tensor]:
        tokens = torch.nn.functional.pad(ids, (padding, 0))
        mask = torch.arange(tokens.shape[1])[None] >= padding
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        target = torch.tensor([tokens.shape[1] - 1])
        activations, _ = model.at_target(
            tokens, mask, positions, target, reads=[last, pattern], edits=edits
        )
        return model.logits(activations[last]).float(), activations[pattern].float()

    plain, seen = rows(0, {})
    server_logits = model.own_logits(ids)[:, -1].float()
    allowed = TOLERANCE.get(model.info.dtype, 2e-1) * max(1.0, float(server_logits.abs().max()))
    gaps = {
        "Logits computed here differ from the server's": plain - server_logits,
        "A padded prompt differs from the plain one": rows(4, {})[0] - plain,
        "Attention rows differ from a sum of 1": seen.sum(-1) - 1,
    }
    for what, difference in gaps.items():
        gap = float(difference.abs().max())
        if not gap <= allowed:
            raise ModelError(
                f"{what} by {gap:.2g} (allowed {allowed:.2g}); {model.info.name!r} cannot be "
                "measured there. Compare library versions with nnsight.compare()."
            )
    if torch.equal(rows(0, {pattern: [everything]})[0], plain):
        raise ModelError(
            f"Editing the attention of {model.info.name!r} on the server changes nothing, so it "
            "cannot be measured there."
        )
