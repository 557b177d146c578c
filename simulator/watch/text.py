"""Pages as text: the exposition format that Prometheus scrapes."""

from simulator.watch.page import Labels, Page


def exposition(page: Page, target: Labels) -> str:
    """The page without the labels of its target, which Prometheus adds by itself."""
    known = frozenset(target)
    lines = []
    for name, pairs, value in page.samples():
        inside = ",".join(f'{label}="{_escaped(text)}"' for label, text in pairs if (label, text) not in known)
        lines.append(f"{name}{{{inside}}} {value!r}\n" if inside else f"{name} {value!r}\n")
    return "".join(lines)


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
