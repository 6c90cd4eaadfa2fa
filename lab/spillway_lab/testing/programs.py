"""Programs that tests start and that `make setup` does not install.

`make` installs them for the targets whose tests need them.
"""

from spillway_lab.testing.servers import ROOT

_BIN = ROOT / ".spillway" / "bin"


def program(name: str) -> str:
    """Returns the path of a program that tools/bring installs.

    Raises FileNotFoundError that names the command when the program is missing.
    """
    path = _BIN / name
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing: `tools/bring {name}` brings it")
    return str(path)
