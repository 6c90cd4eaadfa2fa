"""Programs that tests start and that `make setup` does not bring: `make` brings them for the targets whose tests ask."""

from spillway_lab.testing.servers import ROOT

_BIN = ROOT / ".spillway" / "bin"


def program(name: str) -> str:
    """Path of a program that tools/bring brings. FileNotFoundError names the command when it is not there."""
    path = _BIN / name
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing: `tools/bring {name}` brings it")
    return str(path)
