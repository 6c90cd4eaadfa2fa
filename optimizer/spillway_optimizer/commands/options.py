"""Decorators for the options that several commands have."""

import functools
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import click

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

as_json = click.option("--json", "as_json", is_flag=True, help="JSON instead of text.")


def gathered(kind: type, name: str, *options: Decorator) -> Decorator:
    """Adds options, one per field of the dataclass `kind`.

    The command gets their values as one `kind`, its argument `name`.
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def gathering(**values: Any) -> Any:
            of_kind = {field.name: values.pop(field.name) for field in fields(kind)}
            return command(**values, **{name: kind(**of_kind)})

        made: Callable[..., Any] = gathering
        for option in reversed(options):
            made = option(made)
        return made

    return decorate
