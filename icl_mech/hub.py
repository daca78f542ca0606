"""Whether the Hugging Face hub can be reached, asked once: its loaders would retry for half a minute."""

from collections.abc import Iterator
from contextlib import contextmanager

SECONDS = 3.0
"""How long the hub may take to answer."""


def hub_answers() -> bool:
    """True if the hub, or the mirror or proxy that is set for it, answers one request."""
    from huggingface_hub import constants
    from huggingface_hub.utils import get_session

    try:
        get_session().head(constants.ENDPOINT, timeout=SECONDS)
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
