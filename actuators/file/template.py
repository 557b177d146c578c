"""What a program wants to read, made from the values by a template of its own form."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from controller.core.model import Lever, Target


class BadTemplate(Exception):
    """The template cannot be read, or cannot be filled in; the message says what and where."""


def fill(path: str, values: Mapping[str, Any], variables: Mapping[str, str], looked_at: set[str] | None = None) -> str:
    """The text that a template gives. It knows `variables` by their names and two functions: `value(pool, lever,
    member="", default=...)` and `share(pool, replica)`, the lesser of its weight and its breaker, 1 where neither was
    ever set. What is not defined is an error, and never an empty place. Keys that it asks for go to `looked_at`."""
    room = ImmutableSandboxedEnvironment(  # text of configurations, in which nothing is to be escaped
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )

    def value(pool: str, lever: str, member: str = "", default: Any = None) -> Any:
        key = str(Target(pool, Lever(lever), member))
        if looked_at is not None:
            looked_at.add(key)
        found = values.get(key, default)
        if found is None:
            raise BadTemplate(f"{path}: there is no {key}, and no default for it")
        return found

    def share(pool: str, replica: str) -> float:
        return min(float(value(pool, lever, replica, 1.0)) for lever in (Lever.WEIGHT, Lever.BREAKER))

    try:
        source = Path(path).read_text()
        return room.from_string(source).render(**variables, value=value, share=share)
    except OSError as error:
        raise BadTemplate(f"{path} cannot be read: {error.strerror or error}") from error
    except jinja2.TemplateError as error:
        where = f", line {error.lineno}" if isinstance(error, jinja2.TemplateSyntaxError) else ""
        raise BadTemplate(f"{path}{where}: {error}") from error
    except (TypeError, ValueError, ZeroDivisionError) as error:
        raise BadTemplate(f"{path}: {error}") from error
