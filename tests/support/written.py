"""Configs as they are written: the lines that every file begins with, so that a test shows only what it is about."""

from collections.abc import Iterable

HEAD = "version: 1\n"
SOURCE = '{kind: prometheus, url: "http://127.0.0.1:9"}'


def pool(name: str = "chat", *keys: str, levers: Iterable[str] = (), engine: str = "vllm", selector: str = "") -> str:
    """One pool with its keys and levers, each as a line of YAML; keys of more lines are put in as they are."""
    lines = [f"  {name}:", f"    engine: {engine}", f"    selector: {selector or f'{{model_name: {name}}}'}"]
    lines += [f"    {key}" for key in keys if key]
    moved = [f"      {lever}" for lever in levers]
    return "\n".join([*lines, *(["    levers:"] if moved else []), *moved])


def written(*pools: str, source: str = SOURCE, **sections: str) -> str:
    """A whole file; `sections` are its other keys."""
    others = [f"{key}: {value}" for key, value in sections.items() if value]
    return HEAD + "\n".join([f"source: {source}", *others, "pools:", *pools]) + "\n"
