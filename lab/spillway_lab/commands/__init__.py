"""The commands of `python -m spillway_lab`, by name."""

from spillway_lab.commands import load, render, wan

COMMANDS = {"render": render, "wan": wan, "load": load}
