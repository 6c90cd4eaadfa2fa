"""The command line `python -m spillway_lab COMMAND`.

Each command is a module of spillway_lab.commands.
"""

import logging
import signal
import sys

from spillway_runtime import command_line, exit_codes

from spillway_lab.commands import cli
from spillway_lab.scenario.errors import InvalidInput, LabError


def main(arguments: list[str] | None = None) -> int:
    """Runs one command and returns its exit code. Errors are printed to stderr."""
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s %(message)s"
    )
    # httpx logs every request at INFO.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    # Handle SIGTERM like an interrupt, so that the context managers stop what the command started.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return command_line.run(cli, "spillway_lab", arguments)
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
