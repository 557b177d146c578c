"""The garbage collector of a process that is ours alone."""

import gc

_YOUNG = 50_000  # objects; Python's own 700 come and go many times in one answer of Prometheus


def settle() -> None:
    """Leave alone what stands now, and look for cycles more seldom.

    A tick makes some hundred thousand short-lived objects and hardly a cycle. Each full collection would walk over
    modules, config and windows again, which costs more CPU than deciding. For commands that tick, once, before they do.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, 20, 20)
