from icl_mech._typing import Float, Tensor
from icl_mech.metrics.intervals import Interval


def ratio_interval(
    numerator: Float[Tensor, " batch"], denominator: Float[Tensor, " batch"]
) -> Interval:
    from scipy.stats import t

    n = len(numerator)
    a, b = float(numerator.double().mean()), float(denominator.double().mean())
    import torch

    c = torch.cov(torch.stack([numerator.double(), denominator.double()])) / n
    q = float(t.ppf(0.975, n - 1)) ** 2
    A = b * b - q * float(c[1, 1])
    B = a * b - q * float(c[0, 1])
    C = a * a - q * float(c[0, 0])
    if A <= 0:
        return Interval(a / b, float("nan"), float("nan"))
    d = max(B * B - A * C, 0) ** 0.5
    return Interval(a / b, (B - d) / A, (B + d) / A)
