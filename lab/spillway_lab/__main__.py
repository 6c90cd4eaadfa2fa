"""`python -m spillway_lab COMMAND`. A command is a module of spillway_lab.commands with HELP,
add_arguments(parser) and run(arguments) -> exit code."""

import argparse
import logging
import sys

from spillway_lab.commands import COMMANDS
from spillway_lab.errors import InvalidInput, LabError

EXIT_FAILED, EXIT_INVALID = 1, 64


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="spillway_lab", description="The lab: emulated clusters and load.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, module in COMMANDS.items():
        sub = commands.add_parser(name, help=module.HELP, description=module.HELP)
        module.add_arguments(sub)
        sub.set_defaults(run=module.run)
    arguments = parser.parse_args(argv)
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s %(message)s"
    )
    # httpx tells of every request.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        return arguments.run(arguments)
    except InvalidInput as error:
        print("\n".join(f"spillway_lab: {problem}" for problem in error.problems), file=sys.stderr)
        return EXIT_INVALID
    except LabError as error:
        print(f"spillway_lab: {error}", file=sys.stderr)
        return EXIT_FAILED


if __name__ == "__main__":
    sys.exit(main())
