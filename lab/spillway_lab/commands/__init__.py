"""The commands of `python -m spillway_lab`, by name."""

from spillway_lab.commands import certificates, demo, load, render, replay, stack, wan

COMMANDS = {
    "demo": demo,
    "replay": replay,
    "stack": stack,
    "render": render,
    "certificates": certificates,
    "wan": wan,
    "load": load,
}
