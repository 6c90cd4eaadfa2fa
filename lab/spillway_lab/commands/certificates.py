"""The command `certificates`: reissues every certificate of a run folder."""

from pathlib import Path

import click
from spillway_runtime import command_line

from spillway_lab.keys import certificates
from spillway_lab.keys.keystore import Keystore


@click.command(
    "certificates",
    cls=command_line.Command,
    help=f"Issues a run folder's certificates again ({certificates.LIFETIME.days} days). "
    "Running servers load the new files.",
)
@click.option("--run", "folder", type=command_line.PATH, required=True, help="Run folder.")
def command(folder: Path) -> None:
    store = Keystore(folder / "tls")
    renewed = store.renew()
    held, width = store.held(), max(len(identity.name) for identity in renewed)
    for identity in renewed:
        print(
            f"{identity.name:{width}}  until {held[identity.name].not_valid_after_utc:%F %T}  {identity.uri}"
        )
