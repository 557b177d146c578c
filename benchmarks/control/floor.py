"""The arithmetic floor: what of an event had to be shed whatever anyone did. Pure.

Capacity that is asked for in the very second in which the crowd begins to come serves one cold start later. Until then
there is what was ready. So the least that is shed is what is needed beyond that, over that time:

    floor = sum over [begin, begin + cold start) of max(0, need - ready) / sum over the event of need

with the need in replicas at full batches (`Need`), as a share of all that is offered in the event. Detection, ticks,
scrapes and a cold start longer than its median come on top.
"""

from controller.simulate.ports import Need


def least(need: Need, begin: float, end: float, ready: float, cold_start: float) -> float:
    """The floor of an event, seconds after the start; `ready` replicas at its begin."""
    first, last = round(begin / need.step), round(end / need.step)
    warm = round((begin + cold_start) / need.step)
    rows = need.replicas[first:last]
    whole = sum(rows)
    beyond = sum(max(0.0, one - ready) for one in need.replicas[first : min(warm, last)])
    return beyond / whole if whole else 0.0
