"""The checks at run time that all tests rely on."""

import sys

import jaxtyping
import pytest
import torch
from beartype import beartype
from beartype.roar import BeartypeCallHintViolation

from icl_mech._typing import Float, Tensor
from icl_mech.metrics import flow_counts
from icl_mech.metrics.agreement import same_label
from tests.typechecked import jaxtyped

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="not checked in Python 3.10")


@jaxtyped(typechecker=beartype)
def halved(values: Float[Tensor, "batch n"], names: list[str]) -> Float[Tensor, "batch m"]:
    assert isinstance(torch.zeros(7), Float[Tensor, " n"]) is (values.shape[1] == 7)
    return values[:, ::2] if names else values[0]


@jaxtyped(typechecker=beartype)
def named(name: str) -> int:
    return len(name) if name else name


def test_what_fits_passes_and_axes_belong_to_a_call():
    assert halved(torch.zeros(2, 4), ["a"]).shape == (2, 2)
    assert halved(torch.zeros(3, 7), ["a"]).shape == (3, 4)
    assert named("ab") == 2


@pytest.mark.parametrize(
    "call",
    [
        lambda: halved(torch.zeros(4), ["a"]),
        lambda: halved(torch.zeros(2, 4, dtype=torch.long), ["a"]),
        lambda: halved(torch.zeros(2, 4), [1]),
        lambda: halved(torch.zeros(2, 4), []),
        lambda: named(3),
        lambda: named(""),
    ],
)
def test_what_does_not_fit_is_an_error(call):
    with pytest.raises(BeartypeCallHintViolation):
        call()


def test_the_package_is_checked():
    """Under the package's own refusals, which `unchecked` shows alone."""
    inner = flow_counts.__wrapped__, same_label.__wrapped__
    with pytest.raises(BeartypeCallHintViolation):
        inner[0](torch.zeros(2, 3, dtype=torch.long), torch.zeros(3, dtype=torch.long))
    with pytest.raises(BeartypeCallHintViolation):
        inner[1](torch.zeros(2), torch.zeros(2))


@pytest.mark.usefixtures("unchecked")
def test_checks_can_be_switched_off():
    assert jaxtyping.config.jaxtyping_disable
    assert named("") == ""
