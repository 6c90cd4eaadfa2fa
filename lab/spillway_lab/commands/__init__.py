"""The commands of `python -m spillway_lab`, by name."""

from spillway_lab.commands import demo, load, render, stack, wan

COMMANDS = {"demo": demo, "stack": stack, "render": render, "wan": wan, "load": load}
