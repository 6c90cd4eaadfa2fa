"""NATS's configuration for a set of clusters: one user per role, and one per cluster's relay. Pure.

nats/nats.conf includes users.conf, which includes one file per user. Passwords come from the
environment.
"""

from collections.abc import Mapping
from pathlib import PurePosixPath

from spillway_contracts import names

from spillway_lab.render import templates
from spillway_lab.render.templates import AtTemplate
from spillway_lab.scenario.errors import InvalidInput


def relay_user(cluster: str) -> str:
    return names.NATS_USER_RELAY.format(cluster=cluster)


def password_variable(user: str) -> str:
    """Returns the environment variable that holds a user's password."""
    return f"NATS_{user.upper().replace('-', '_')}_PASSWORD"


def users(clusters: list[str]) -> list[str]:
    """Returns every user.

    Raises InvalidInput when the passwords of two clusters would share one variable.
    """
    relays = [relay_user(cluster) for cluster in clusters]
    variables = [password_variable(user) for user in relays]
    if twice := sorted({name for name in variables if variables.count(name) > 1}):
        raise InvalidInput(
            [f"clusters: {', '.join(clusters)}; allowed: names that differ in more than case, - and _"
             f" ({', '.join(twice)} would be one password)"]
        )  # fmt: skip
    return [PurePosixPath(name).stem for name in templates.ROLE_USERS] + relays


def configuration(clusters: list[str], texts: Mapping[str, str]) -> dict[str, str]:
    """Returns file name -> content, relative to the run folder."""
    files = {name: texts[name] for name in (templates.NATS, *templates.ROLE_USERS)}
    for cluster in clusters:
        user = relay_user(cluster)
        values = {
            "CLUSTER": cluster,
            "USER": user,
            "INBOX": names.NATS_INBOX_RELAY.format(cluster=cluster),
            "PASSWORD": password_variable(user),
        }
        template = AtTemplate(texts[templates.RELAY_USER])
        files[f"nats/users/{user}.conf"] = templates.fill(templates.RELAY_USER, template, values)
    included = "".join(f"  {{ include users/{user}.conf }}\n" for user in users(clusters))
    files["nats/users.conf"] = f"users: [\n{included}]\n"
    return files
