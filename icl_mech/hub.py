"""Whether the Hugging Face hub can be reached: its loaders would retry for half a minute."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf

SECONDS = 3.0
"""How long the hub may take to answer."""


KNOWN_FOR = 30.0
"""Seconds for which an answer, or none, is taken to hold: loading a model asks several times."""

_ANSWERED: dict[str, tuple[float, bool]] = {}


def hub_answers() -> bool:
    """True if the hub, or the mirror or proxy that is set for it, answers one request, or did so just now."""
    from huggingface_hub import constants

    when, answers = _ANSWERED.get(constants.ENDPOINT, (-inf, False))
    if time.monotonic() - when >= KNOWN_FOR:
        answers = _answers(constants.ENDPOINT)
        _ANSWERED[constants.ENDPOINT] = time.monotonic(), answers
    return answers


def _answers(address: str) -> bool:
    from huggingface_hub.utils import get_session

    try:
        get_session().head(address, timeout=SECONDS)
    except Exception:  # noqa: BLE001 - of whichever library sends it
        return False
    return True


@contextmanager
def without_retries() -> Iterator[None]:
    """Context in which `datasets` looks only for downloaded data if the hub does not answer."""
    from datasets import config
    from huggingface_hub import constants

    before = config.HF_HUB_OFFLINE, constants.HF_HUB_OFFLINE
    if not hub_answers():
        config.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        config.HF_HUB_OFFLINE, constants.HF_HUB_OFFLINE = before
