"""Where a step-time model is wrong in structure: its fixed part against the part that grows with the batch.

kappa scales a model to the batch of the moment; this learns how the ratio of measured to modelled step time changes
with the batch. With s the share of the modelled step that grows with the batch,

    measured / modelled = A * (1 - s) + B * s

is fitted by least squares that fade over an hour, with the mean ratio as the prior of both A and B (ridge). While the
batch is always the same nothing speaks for a tilt and there is none; a model that was learned at night and is wrong in
the morning is bent as soon as batches grow.
"""

import math
from typing import NamedTuple

MEMORY = 3600.0  # seconds over which samples fade
UNIT = 180.0  # seconds of samples that weigh 1
PRIOR = 0.05  # weight of the prior against samples of which each is wrong by some percent
MOST = 2.0  # largest tilt of a part, either way


class Tilt(NamedTuple):
    """Fading sums of the normal equations: of (1 - s)^2, (1 - s) s, s^2, and of the ratio with each."""

    aa: float = 0.0
    ab: float = 0.0
    bb: float = 0.0
    ra: float = 0.0
    rb: float = 0.0

    def take(self, gone: float, share: float, ratio: float) -> "Tilt":
        """One more sample, `gone` seconds after the last; `share` in [0, 1]."""
        keep, weight = math.exp(-gone / MEMORY), min(gone, UNIT) / UNIT
        fixed = 1.0 - share
        return Tilt(
            keep * self.aa + weight * fixed * fixed,
            keep * self.ab + weight * fixed * share,
            keep * self.bb + weight * share * share,
            keep * self.ra + weight * fixed * ratio,
            keep * self.rb + weight * share * ratio,
        )

    def factors(self) -> tuple[float, float]:
        """By what the fixed and the growing part of the model are to be multiplied. Together they leave the step as it
        is at the mean share of what was seen: the scale is kappa's."""
        whole = self.aa + 2 * self.ab + self.bb  # the sum of weights
        if whole <= 0:
            return 1.0, 1.0
        mean, share = (self.ra + self.rb) / whole, (self.ab + self.bb) / whole
        aa, bb, ab = self.aa + PRIOR, self.bb + PRIOR, self.ab
        ra, rb = self.ra + PRIOR * mean, self.rb + PRIOR * mean
        determinant = aa * bb - ab * ab
        fixed, grows = (bb * ra - ab * rb) / determinant, (aa * rb - ab * ra) / determinant
        # How steep the line may be, so that neither part is bent by more than MOST.
        slope = grows - fixed
        here = fixed + slope * share
        if here <= 0:
            return 1.0, 1.0
        slope /= here
        for part in (-share, 1.0 - share):
            if part * slope > MOST - 1.0:
                slope = (MOST - 1.0) / part
            elif part * slope < 1.0 / MOST - 1.0:
                slope = (1.0 / MOST - 1.0) / part
        return 1.0 - slope * share, 1.0 + slope * (1.0 - share)
