"""Values of a candidate in one scrape, series by series, before any series are combined."""

import math
import re
from collections.abc import Iterator

from sources.contracts.contract import Candidate
from sources.exposition import Exposition
from sources.frames import Labels, Sample


def matches(candidate: Candidate, sample: Sample) -> bool:
    """Whether a sample passes the candidate's label filter; an absent label is an empty one."""
    pairs = dict(sample.labels)
    for matcher in candidate.where:
        value = pairs.get(matcher.label, "")
        same = value == matcher.value if "~" not in matcher.op else re.fullmatch(matcher.value, value) is not None
        if same == matcher.op.startswith("!"):
            return False
    return True


def gauge_values(candidate: Candidate, page: Exposition) -> Iterator[tuple[Labels, float]]:
    """Scaled values of a gauge, blanks and NaN left out; of a ratio the quotient of the sums."""
    values = [
        (sample.labels, sample.value)
        for sample in page.samples
        if sample.name == candidate.metric and matches(candidate, sample) and _real(candidate, sample.value)
    ]
    if candidate.over is None:
        yield from ((pairs, value * candidate.scale) for pairs, value in values)
        return
    below = sum(value for _, value in gauge_values(candidate.over, page))
    if values and below > 0:
        yield (), sum(value for _, value in values) / below * candidate.scale


def _real(candidate: Candidate, value: float) -> bool:
    if not math.isfinite(value):
        return False
    low, high = candidate.ignore_below, candidate.ignore_above
    return (low is None or value >= low) and (high is None or value <= high)
