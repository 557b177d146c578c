"""What a template gives while every value is at rest, for the first start of the program that reads it:

python -m actuators.file TEMPLATE NAME=VALUE... > OUTPUT
"""

import sys

from actuators.file.template import BadTemplate, fill


def main(words: list[str]) -> int:
    """0, or 2 with a message."""
    if not words or not all("=" in word for word in words[1:]):
        sys.stderr.write("usage: python -m actuators.file TEMPLATE NAME=VALUE... > OUTPUT\n")
        return 2
    pairs = (word.partition("=") for word in words[1:])
    try:
        sys.stdout.write(fill(words[0], {}, {name: value for name, _, value in pairs}))
    except BadTemplate as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
