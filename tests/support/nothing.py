"""A source for tests in which nobody looks at a fleet."""

from controller.core.observation import Observation


class Nothing:
    """A source that sees nothing."""

    def observe(self, at: float, deadline: float) -> Observation:
        return Observation(at, None)

    def close(self) -> None:
        """Nothing is open."""
