"""`classes list|pin|unpin|explain`: the classes, the reason for each, and operators' pins.

Run as `python -m spillway_streams classes`.
"""

import functools
import getpass
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, astuple
from typing import Any

import click
from clickhouse_driver import Client
from clickhouse_driver.errors import Error
from spillway_contracts import ContractError, traffic_class
from spillway_runtime import command_line, exit_codes
from spillway_runtime.settings import load

from spillway_streams import StreamsError
from spillway_streams.classes import findings, pattern, rules, tables
from spillway_streams.classes.rules import Rule
from spillway_streams.clients import store
from spillway_streams.commands import options
from spillway_streams.process import config

Answer = tuple[dict, str]  # a JSON object, empty if there is none, and the same as text


@click.group("classes", cls=command_line.Group)
def command() -> None:
    """Traffic classes: list, pin, unpin, explain.

    The exit code is 1 if the store is unreachable or there is no such rule, and 64 if a class, a
    template or a setting is wrong.
    """


def _asking(ask: Callable[..., Answer]) -> Callable[..., int]:
    """Adds --json, gives the function a client as its first argument, and prints its answer."""

    @options.as_json
    @functools.wraps(ask)
    def asking(as_json: bool, **values: Any) -> int:
        settings = load(config.ClickHouseSettings)
        try:
            answer, text = ask(store.connect(settings.clickhouse_address), **values)
        except (StreamsError, ContractError) as error:
            print(f"error: {error}", file=sys.stderr)
            return exit_codes.USAGE
        except (Error, OSError) as error:
            print(f"error: {settings.clickhouse_url.rpartition('@')[2]}: {error}", file=sys.stderr)
            return exit_codes.FAILED
        print(json.dumps(answer) if as_json else text)
        return 0 if answer else exit_codes.FAILED

    return asking


def _of_rule(change: Callable[..., int]) -> Callable[..., int]:
    """Adds what a pin and its end have in common."""
    for decorate in (
        click.option("--by", default=getpass.getuser, help="Who makes the change. Default: the login name."),
        click.option("--reason", required=True, help="Why the change is made; stored with the rule."),
        click.option("--method", default="", help="Default: any."),
        click.option("--service", required=True),
        click.argument("template"),
    ):
        change = decorate(change)
    return change


def _now_ms(client: Client) -> int:
    """Returns the time of the server, because the operator's clock may be wrong."""
    [(now,)] = client.execute("SELECT toUnixTimestamp64Milli(now64(3))")
    return now


def _in_force(client: Client, service: str | None) -> list[Rule]:
    """Returns the rules that are in force or will be within DELAY_MS."""
    known = tables.read_rules(client.execute(tables.RULES_SQL))
    held = rules.in_force(known, _now_ms(client) + rules.DELAY_MS)
    return [rule for rule in held if service in (None, rule.service)]


@command.command("list")
@click.option("--service")
@_asking
def _list(client: Client, service: str | None) -> Answer:
    """Lists classes with the reason for each, and the rules in force."""
    held = _in_force(client, service)
    by_service = rules.by_service(held)
    found = []
    for finding in tables.read_findings(client.execute(tables.FINDINGS_SQL)):
        its_service, method, template = finding.class_.split(" ")
        rule = rules.match(by_service.get(its_service, []), method, template)
        if service in (None, its_service) and (rule is None or not rule.template or rule.becomes == template):
            found.append(finding)
    answer = {"classes": [_finding(finding) for finding in found], "rules": [asdict(rule) for rule in held]}
    lines = [f"{len(found)} classes, {len(held)} rules", ""]
    lines += [
        f"{o.class_}  {o.verdict}  {o.requests:.0f} requests  {o.exclusive_p50_ms:.3g} ms  {o.reason}"
        for o in found
    ]
    lines += ["", *map(_line, held)]
    return answer, "\n".join(lines)


def _finding(finding: findings.Finding) -> dict:
    return dict(zip(findings.COLUMNS, asdict(finding).values(), strict=True))


def _line(rule: Rule) -> str:
    what = f"{rule.template or 'all others'} -> {rule.becomes}"
    return f"{rule.kind}  {rule.service} {rule.method or '*'} {what}  {rule.author}: {rule.reason}"


@command.command("pin")
@_of_rule
@click.option("--becomes", metavar="TEMPLATE", help="The class's template.")
@click.option("--keep", is_flag=True, help="The class stays a class of its own.")
@click.option("--other", is_flag=True, help="The class becomes /other.")
@command_line.exclusive("becomes", "keep", "other", required=True)
@_asking
def _pin(client: Client, becomes: str, keep: bool, other: bool, **of_rule: str) -> Answer:
    """Stores a rule that no decision of the job overrides. It is in force a minute later.

    TEMPLATE is a path template. A segment * stands for any one segment.
    """
    template = pattern.check(of_rule.pop("template"), wildcards=not keep)
    if other:
        becomes = pattern.OTHER
    else:
        becomes = template if keep else pattern.check(becomes, wildcards=False)
    traffic_class.parse(f"{of_rule['service']} {of_rule['method'] or 'GET'} {becomes}")
    if becomes != pattern.OTHER and not pattern.covers(becomes, template):
        raise StreamsError(
            f"--becomes {becomes}: does not match every path of {template}; Envoy routes a class by its one "
            "template, so there must be the same segments, or variables, at each position"
        )
    return _write(client, template, becomes, rules.PINNED, **of_rule)


@command.command("unpin")
@_of_rule
@_asking
def _unpin(client: Client, template: str, service: str, method: str, **why: str) -> Answer:
    """Ends a pin."""
    held = [rule for rule in _in_force(client, service) if rule.kind == rules.PINNED]
    if not any((rule.method, rule.template) == (method, template) for rule in held):
        pins = "\n".join(map(_line, held)) or "none"
        return {}, f"no such pin of {service}; pins:\n{pins}"
    return _write(client, template, "", rules.UNPINNED, service, method, **why)


def _write(
    client: Client, template: str, becomes: str, kind: str, service: str, method: str, reason: str, by: str
) -> Answer:
    now = _now_ms(client)
    rule = Rule(now, now + rules.DELAY_MS, service, method, template, becomes, kind, by, reason)
    sql = f"INSERT INTO {tables.RULES} ({', '.join(rules.COLUMNS)}) VALUES"
    client.execute(sql, [astuple(rule)])
    return asdict(rule), f"{_line(rule)}\nin force in {rules.DELAY_MS // 1000} s"


@command.command("explain")
@click.argument("class_id", metavar="CLASS")
@_asking
def _explain(client: Client, class_id: str) -> Answer:
    """Shows why a request gets its class, and what was found about it.

    CLASS is 'service METHOD /path/template'.
    """
    wanted = traffic_class.parse(class_id)
    held = _in_force(client, wanted.service)
    rule = rules.match(held, wanted.method, wanted.path_template)
    becomes = rule.becomes if rule else wanted.path_template
    class_id = f"{wanted.service} {wanted.method} {becomes}"
    makers = [maker for maker in held if maker.becomes == becomes and maker.method in ("", wanted.method)]
    found = [
        finding
        for finding in tables.read_findings(client.execute(tables.FINDINGS_SQL))
        if finding.class_ == class_id
    ]
    finding = _finding(found[0]) if found else None
    answer = {
        "class": class_id,
        "rule": asdict(rule) if rule else None,
        "makers": [asdict(maker) for maker in makers],
        "finding": finding,
    }
    lines = [
        f"class   {class_id}",
        f"by      {_line(rule) if rule else 'its own template, no rule names it'}",
    ]
    lines += [f"made by {_line(maker)}" for maker in makers if maker != rule]
    lines += [f"{name:18}{value}" for name, value in (finding or {"found": "nothing yet"}).items()]
    return answer, "\n".join(lines)
