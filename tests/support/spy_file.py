"""The file actuator, telling in which order it was called, and dying after a write when it is told to."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from actuators.file import File
from controller.core.model import Applied, Decision, Target, TargetState


class SpyFile(File):
    """`calls` of all instances; while `dies`, a write lands and its outcome is never told."""

    calls: ClassVar[list[str]] = []
    dies: ClassVar[bool] = False

    def read(self, targets: Sequence[Target], now: float) -> Mapping[Target, TargetState]:
        self.calls.append("read")
        return super().read(targets, now)

    def apply(self, decisions: Sequence[Decision], now: float) -> Sequence[Applied]:
        self.calls.append("apply")
        told = super().apply(decisions, now)
        if self.dies:
            raise RuntimeError("killed before it could tell")
        return told

    def verify(self, decisions: Sequence[Decision], now: float) -> Sequence[Applied]:
        self.calls.append("verify")
        return super().verify(decisions, now)
