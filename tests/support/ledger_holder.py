"""A program that opens the ledger in DIRECTORY and holds it until its standard input ends:
`python -m tests.support.ledger_holder DIRECTORY`."""

import json
import sys
from pathlib import Path

from controller.run.ledger import FileLedger, LedgerError


def main(directory: Path) -> None:
    try:
        book = FileLedger(directory, max_size=1 << 22, rotate_size=1 << 20)
    except LedgerError as error:
        sys.stdout.write(json.dumps({"event": "taken", "error": str(error)}) + "\n")
        return
    sys.stdout.write(json.dumps({"event": "holding"}) + "\n")
    sys.stdout.flush()
    sys.stdin.read()
    book.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
