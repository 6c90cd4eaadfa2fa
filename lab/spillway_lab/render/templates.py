"""The files of infra/ that are filled in: their text by path below infra/, and the two ways of filling in."""

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
    """@NAME@, where $NAME means something to the program that reads the file."""

    delimiter = "@"
    pattern = r"@(?:(?P<escaped>@)|(?P<named>[A-Z_]+)@|(?P<braced>\b\B)|(?P<invalid>\b\B))"


def read(infra: Path) -> dict[str, str]:
    """Every template of the folder; InvalidInput names those that cannot be read."""
    texts, problems = {}, []
    for name in ALL:
        try:
            texts[name] = (infra / name).read_text()
        except (OSError, UnicodeDecodeError) as error:
            problems.append(f"SPILLWAY_LAB_INFRA: {infra / name} cannot be read: {error}")
    if problems:
        raise InvalidInput(problems)
    return texts


def fill(name: str, template: Template, values: Mapping[str, str]) -> str:
    """InvalidInput names a placeholder that nothing fills in."""
    try:
        return template.substitute(values)
    except (KeyError, ValueError) as error:
        raise InvalidInput([f"infra/{name}: {error}; placeholders: {', '.join(values)}"]) from error
