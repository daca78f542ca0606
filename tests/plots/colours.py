"""How colours look to the colour-blind, and how far apart they are."""

import numpy as np

SEEN = {
    "all colours": np.eye(3),
    "no red": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "no green": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "no blue": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
    "grey": [[0.2126, 0.7152, 0.0722]] * 3,
}  # fmt: skip
"""Linear RGB as seen by eyes with all cones, without one of them (Machado et al. 2009), and in print without colour."""

TO_XYZ = [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]  # fmt: skip


def lab(colour, eye="all colours"):
    """CIELAB (D65) of a `#rrggbb` colour, as an eye sees it."""
    rgb = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.array(SEEN[eye]) @ linear, 0, 1)
    xyz = np.array(TO_XYZ) @ seen / [0.95047, 1.0, 1.08883]
    f = np.where(xyz > (6 / 29) ** 3, np.cbrt(xyz), xyz / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def apart(one, other, eye="all colours"):
    """Difference of two colours to an eye (ΔE 1976)."""
    return float(np.linalg.norm(lab(one, eye) - lab(other, eye)))
