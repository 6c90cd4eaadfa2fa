"""The commands of `python -m spillway_lab`, by name."""

from spillway_lab.commands import accuracy, certificates, demo, load, render, replay, sql, stack, wan

COMMANDS = {
    "accuracy": accuracy,
    "demo": demo,
    "replay": replay,
    "sql": sql,
    "stack": stack,
    "render": render,
    "certificates": certificates,
    "wan": wan,
    "load": load,
}
