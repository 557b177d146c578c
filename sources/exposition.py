"""Read Prometheus and OpenMetrics text, as a /metrics page gives it, into samples.

Read line by line and not with prometheus_client's parser: a pasted page may be cut off anywhere, the error must name
the line, and samples must keep their names (that parser adds ``_total`` to counters that have none on the wire).
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from controller.core.errors import InputError
from sources.frames import Sample, labels

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_LABEL = r'\s*(?P<{0}>[a-zA-Z_][a-zA-Z0-9_.]*|"(?:[^"\\]|\\.)*")\s*=\s*"(?P<{1}>(?:[^"\\]|\\.)*)"\s*'
_SAMPLE = re.compile(
    rf"(?P<name>{_NAME})\s*(?:\{{(?P<labels>(?:[^\"}}]|\"(?:[^\"\\]|\\.)*\")*)\}})?\s*"
    r"(?P<value>[^\s{}]+)(?:\s+(?P<time>-?[0-9.eE+]+))?(?:\s+#\s.*)?\s*"
)
_PAIR = re.compile(_LABEL.format("label", "value"))
_TYPE = re.compile(rf"#\s*TYPE\s+(?P<name>{_NAME})\s+(?P<type>\w+)\s*")
_ESCAPE = re.compile(r"\\(.)")
_MARKUP = re.compile(r"\s*(<(!doctype|html|\?xml)\b|[{\[])", re.IGNORECASE)


class ExpositionError(InputError):
    """The text is no exposition, or broken at a line. The message names the line and the mistake."""


@dataclass(frozen=True, slots=True)
class Exposition:
    """One scrape. `types` maps a family's declared name to its type: families without a sample yet are in it too."""

    samples: tuple[Sample, ...]
    types: Mapping[str, str]

    @property
    def names(self) -> frozenset[str]:
        """Every name that is exposed or declared. A counter that is declared under its OpenMetrics name, without
        ``_total``, is in it under both."""
        declared = {spelling for name, kind in self.types.items() for spelling in _spellings(name, kind)}
        return frozenset(declared | {sample.name for sample in self.samples})


def parse(text: str) -> Exposition:
    """The samples and types of `text`. Raises ExpositionError for a page that is no exposition, has no sample and no
    declaration, or has a line that cannot be read. The last line may be cut off; it is then left out."""
    if _MARKUP.match(text):
        raise ExpositionError(
            "line 1: this is markup or JSON, not metrics; fetch the /metrics page of the engine itself"
        )
    samples: list[Sample] = []
    types: dict[str, str] = {}
    lines = text.split("\n")
    cut = len(lines) if lines[-1] else None  # text that does not end with a newline may end inside a sample
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        if line.lstrip().startswith("#"):
            if found := _TYPE.fullmatch(line):
                types[found["name"]] = found["type"]
            continue
        try:
            samples.append(_sample(line))
        except ValueError as why:
            if number == cut and samples:
                break
            raise ExpositionError(f"line {number}: {why}: {line.strip()[:80]!r}") from None
    if not samples and not types:
        raise ExpositionError("there is no metric in this text; give what /metrics of an engine answers")
    return Exposition(tuple(samples), types)


def _sample(line: str) -> Sample:
    if not (found := _SAMPLE.fullmatch(line)):
        raise ValueError("not a sample")
    try:
        value = float(found["value"])
    except ValueError:
        raise ValueError(f"{found['value']!r} is not a number") from None
    return Sample(found["name"], labels(_pairs(found["labels"] or "")), value)


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(text):
        if not (found := _PAIR.match(text, at)):
            raise ValueError("labels cannot be read")
        yield found["label"].strip('"'), _ESCAPE.sub(_unescape, found["value"])
        at = found.end()
        if at < len(text):
            if text[at] != ",":
                raise ValueError("labels cannot be read")
            at += 1
            if not text[at:].strip():
                return  # a comma after the last label is allowed


def _unescape(found: re.Match[str]) -> str:
    return "\n" if found[1] == "n" else found[1]


def _spellings(name: str, kind: str) -> tuple[str, ...]:
    return (name, f"{name}_total") if kind == "counter" and not name.endswith("_total") else (name,)
