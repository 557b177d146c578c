"""ServeGen's clients brought to life: each client's arrivals are drawn in each of its windows by its own law."""

from collections.abc import Iterator

import numpy as np

from controller.core.errors import InputError
from simulator.traffic import chance
from simulator.traffic.arrivals import MOST_CV, Gamma, Gaps, Rate, Weibull, arrival_times
from simulator.traffic.cast import Batch, Cast
from simulator.traffic.chance import Floats
from simulator.traffic.lengths import Sizes
from simulator.traffic.spec import ServeGen
from simulator.traffic.traces import Windows

SLICE = 4096  # requests in one batch


def tenants(windows: Windows) -> tuple[str, ...]:
    """The clients, as tenants."""
    return tuple(f"c{client}" for client in dict.fromkeys(windows.client))


def servegen(
    stream: ServeGen, windows: Windows, cast: Cast, sizes: Sizes, seed: int, begin: float, end: float
) -> Iterator[Batch]:
    """The stream's requests in order, from `begin` to `end`. An InputError, at once, when its settings leave none."""
    if not (windows.at + stream.window > stream.since).any():
        last = float(windows.at.max()) + stream.window
        raise InputError(
            f"{stream.file}: since of traffic {stream.name!r} is after the end of the trace, {last:g} s; lower it"
        )
    return _batches(stream, windows, cast, sizes, seed, begin, end)


def _batches(
    stream: ServeGen, windows: Windows, cast: Cast, sizes: Sizes, seed: int, begin: float, end: float
) -> Iterator[Batch]:
    number = {client: place for place, client in enumerate(dict.fromkeys(windows.client))}
    chances: dict[str, np.random.Generator] = {}
    opens = begin + (windows.at - stream.since) / stream.speed
    closes = opens + stream.window / stream.speed
    for start in np.unique(opens[(closes > begin) & (opens < end)]).tolist():
        times: list[Floats] = []
        who: list[int] = []
        for row in np.flatnonzero((opens == start) & (windows.rate > 0)).tolist():
            client = windows.client[row]
            rng = chances.setdefault(client, chance.stream(seed, stream.name, "arrivals", client))
            # Beyond this the gaps of a gamma law are zeros and, once in a while, a day.
            cv = min(MOST_CV, max(0.05, float(windows.cv[row])))
            gaps = Gaps(Weibull(cv=cv) if windows.weibull[row] else Gamma(cv=cv), rng)
            rate = float(windows.rate[row]) * stream.factor * stream.speed
            expected = rate * (closes[row] - start)
            chunk = int(min(SLICE, 1.2 * expected + 16))
            pieces = list(arrival_times(Rate(rate, ()), gaps, start, float(closes[row]), chunk))
            times.extend(pieces)
            who.extend([number[client]] * sum(map(len, pieces)))
        if not who:
            continue
        at = np.concatenate(times)
        order = np.argsort(at, kind="stable")
        order = order[(at[order] >= begin) & (at[order] < end)]
        at, tenant = at[order], np.array(who, dtype=np.int64)[order]
        for low in range(0, len(at), SLICE):
            part = slice(low, low + SLICE)
            prompt, answer = sizes.draw(len(at[part]))
            yield Batch(at[part], prompt, answer, tenant[part], cast.kinds(tenant[part]))
