"""A policy that never answers, as a run does that has hours to go between two looks at whether it shall stop."""

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NoReturn

from controller.core.model import Lever
from controller.core.params import param


class Stuck:
    """Says that it was asked, by a file, and never answers."""

    levers: ClassVar[tuple[Lever, ...]] = (Lever.REPLICAS,)

    @dataclass(frozen=True)
    class Config:
        """Where to say it."""

        said: str = param("file that is there once it was asked")

    def __init__(self, config: "Stuck.Config") -> None:
        self.config = config

    def initial(self) -> None:
        """It remembers nothing."""

    def propose(self, *_: object) -> NoReturn:
        Path(self.config.said).touch()
        while True:
            threading.Event().wait()
