"""Prints the papers' scenarios: python -m spillway_optimizer.scenarios [NAME ...] [--json]"""

import argparse
import json
import sys

from spillway_optimizer.scenarios import ALL
from spillway_optimizer.scenarios.table import as_text, rows


def main() -> int:
    names = [scenario.name for scenario in ALL]
    parser = argparse.ArgumentParser(
        prog="spillway_optimizer.scenarios", description="The papers' examples under every policy."
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of {', '.join(names)}; all when none is given"
    )
    parser.add_argument("--json", action="store_true", help="one JSON array instead of text")
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.names if name not in names]:
        parser.error(f"NAME: unknown {', '.join(map(repr, unknown))}; known: {', '.join(names)}")
    chosen = [scenario for scenario in ALL if scenario.name in (arguments.names or names)]
    table = rows(chosen)
    print(json.dumps(table) if arguments.json else as_text(chosen, table))
    return 0


if __name__ == "__main__":
    sys.exit(main())
