"""The sentence for values that are no number: one for every source."""

from collections.abc import Collection

_NAMED = 3  # how many replicas a sentence names


def not_a_number(metric: str, members: Collection[str]) -> str:
    """Which replicas (or parts of a split) of a pool gave NaN or an infinity; the name "" stands for none."""
    named = sorted(set(members) - {""})
    of = f" of {', '.join(named[:_NAMED])}" if named else ""
    return f"{metric}{of}{f' and {len(named) - _NAMED} more' if len(named) > _NAMED else ''} is not a number"
