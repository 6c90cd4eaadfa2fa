"""The command line `python -m spillway_lab COMMAND`.

Each command is a module of spillway_lab.commands that defines HELP, add_arguments(parser) and
run(arguments), which returns the exit code.
"""

import argparse
import logging
import signal
import sys

from spillway_runtime import exit_codes

from spillway_lab.commands import COMMANDS
from spillway_lab.scenario.errors import InvalidInput, LabError


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
    # httpx logs every request at INFO.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    # Handle SIGTERM like an interrupt, so that the context managers stop what the command started.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return arguments.run(arguments)
    except KeyboardInterrupt:
        print("spillway_lab: interrupted", file=sys.stderr)
        return exit_codes.INTERRUPTED
    except InvalidInput as error:
        print("\n".join(f"spillway_lab: {problem}" for problem in error.problems), file=sys.stderr)
        return exit_codes.USAGE
    except LabError as error:
        print(f"spillway_lab: {error}", file=sys.stderr)
        return exit_codes.FAILED


if __name__ == "__main__":
    sys.exit(main())
