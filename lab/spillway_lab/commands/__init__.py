"""The commands of `python -m spillway_lab`. Each module has one, `command`."""

from spillway_runtime import command_line

from spillway_lab.commands import (
    accuracy,
    certificates,
    demo,
    experiments,
    footprint,
    lab,
    load,
    reaction,
    render,
    replay,
    report,
    simulate,
    sql,
    stack,
    wan,
)

_MODULES = (
    accuracy,
    demo,
    footprint,
    reaction,
    lab,
    replay,
    experiments,
    report,
    simulate,
    sql,
    stack,
    render,
    certificates,
    wan,
    load,
)
cli = command_line.Group(
    help="The lab: emulated clusters and load.", commands=[module.command for module in _MODULES]
)
