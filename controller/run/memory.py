"""The garbage collector of a process that is ours alone."""

import gc

# Objects. A tick of a thousand pools has half a million at once, nearly all of which are gone when it ends: a limit
# below that has each of them looked at once, for nothing.
_YOUNG = 700_000


def settle() -> None:
    """Leave alone what stands now, and look for cycles more seldom.

    A tick makes some hundred thousand short-lived objects and hardly a cycle. Each full collection would walk over
    modules, config and windows again, which costs more CPU than deciding. For commands that tick, once, before they do.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, 5, 5)
