"""The template files of infra/: their text by path below infra/, and how to fill them in."""

from collections.abc import Mapping
from pathlib import Path
from string import Template

from spillway_lab.scenario.errors import InvalidInput

POD, INBOUND = "envoy/pod.yaml", "envoy/inbound.yaml"
CERTIFICATE, TRUST = "envoy/certificate.yaml", "envoy/trust.yaml"
NATS, RELAY_USER = "nats/nats.conf", "nats/users/relay.conf"
ROLE_USERS = tuple(f"nats/users/{role}.conf" for role in ("optimizer", "papa", "publisher", "operator"))
ALL = (POD, INBOUND, CERTIFICATE, TRUST, NATS, *ROLE_USERS, RELAY_USER)


class AtTemplate(Template):
    """A template with @NAME@ placeholders.

    It serves files in which $NAME has a meaning for the program that reads them.
    """

    delimiter = "@"
    # The base class compiles this text, and then has the pattern that its type says.
    pattern = r"@(?:(?P<escaped>@)|(?P<named>[A-Z_]+)@|(?P<braced>\b\B)|(?P<invalid>\b\B))"  # type: ignore[assignment]


def read(infra: Path) -> dict[str, str]:
    """Reads every template of the folder. Raises InvalidInput that names the unreadable ones."""
    texts: dict[str, str] = {}
    problems: list[str] = []
    for name in ALL:
        try:
            texts[name] = (infra / name).read_text()
        except (OSError, UnicodeDecodeError) as error:
            problems.append(f"SPILLWAY_LAB_INFRA: {infra / name} cannot be read: {error}")
    if problems:
        raise InvalidInput(problems)
    return texts


def fill(name: str, template: Template, values: Mapping[str, str]) -> str:
    """Fills in a template. Raises InvalidInput that names a placeholder without a value."""
    try:
        return template.substitute(values)
    except (KeyError, ValueError) as error:
        raise InvalidInput([f"infra/{name}: {error}; placeholders: {', '.join(values)}"]) from error
