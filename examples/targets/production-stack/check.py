"""Judges a dynamic configuration before production-stack's router reads it: `python3 check.py FILE`.

The router takes the whole file or nothing, tells nobody that it took nothing, and imports what `callbacks` names.
"""

import json
import sys
from urllib.parse import urlsplit

KNOWN = {"service_discovery", "routing_logic", "static_backends", "static_models", "static_aliases"}


def mistakes(config: object) -> list[str]:
    """What is wrong with it, in sentences."""
    if not isinstance(config, dict) or set(config) != KNOWN or not all(isinstance(v, str) for v in config.values()):
        return [f"it must be a mapping of {', '.join(sorted(KNOWN))} to text, and of nothing else"]
    urls, models = config["static_backends"].split(","), config["static_models"].split(",")
    found = [f"{url!r} is no URL" for url in urls if not urlsplit(url).hostname]
    if len(urls) != len(models):
        found.append(f"{len(urls)} backends have {len(models)} models; each needs its own")
    for entry in config["static_aliases"].split(","):
        alias, _, model = entry.partition(":")
        if not alias or model not in models:
            found.append(f"the alias {entry!r} leads to no model of a backend")
    return found


if __name__ == "__main__":
    try:
        with open(sys.argv[1]) as file:
            found = mistakes(json.load(file))
    except (OSError, ValueError) as error:
        found = [str(error)]
    sys.exit("; ".join(found) or 0)
