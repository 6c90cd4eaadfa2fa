"""The command `certificates`: reissues every certificate of a run folder."""

import argparse
from pathlib import Path

from spillway_lab.keys import certificates
from spillway_lab.keys.keystore import Keystore

HELP = f"issues a run folder's certificates again ({certificates.LIFETIME.days} days); servers take them up as they run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--run", type=Path, required=True, help="run folder", dest="folder")


def run(arguments: argparse.Namespace) -> int:
    store = Keystore(arguments.folder / "tls")
    renewed = store.renew()
    held, width = store.held(), max(len(identity.name) for identity in renewed)
    for identity in renewed:
        print(
            f"{identity.name:{width}}  until {held[identity.name].not_valid_after_utc:%F %T}  {identity.uri}"
        )
    return 0
