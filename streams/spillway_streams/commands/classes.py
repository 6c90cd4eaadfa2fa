"""`classes list|pin|unpin|explain`: the classes, the reason for each, and operators' pins.

Run as `python -m spillway_streams classes`.
"""

import argparse
import getpass
import json
import sys
from dataclasses import asdict, astuple

from clickhouse_driver import Client
from clickhouse_driver.errors import Error
from spillway_contracts import ContractError, traffic_class
from spillway_runtime import exit_codes
from spillway_runtime.settings import load

from spillway_streams import StreamsError
from spillway_streams.classes import findings, pattern, rules, tables
from spillway_streams.classes.rules import Rule
from spillway_streams.clients import store
from spillway_streams.process import config


def add_arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="action", required=True)
    lists = commands.add_parser("list", help="classes with the reason for each, and the rules in force")
    lists.add_argument("--service")
    pin = commands.add_parser(
        "pin", help="a rule that no decision of the job overrides; in force a minute later"
    )
    unpin = commands.add_parser("unpin", help="ends a pin")
    for one in (pin, unpin):
        one.add_argument("template", help="path template; a segment * stands for any one segment")
        one.add_argument("--service", required=True)
        one.add_argument("--method", default="", help="default: any")
        one.add_argument("--reason", required=True)
        one.add_argument("--by", default=getpass.getuser(), help="who; default: the login name")
    becomes = pin.add_mutually_exclusive_group(required=True)
    becomes.add_argument("--becomes", metavar="TEMPLATE", help="the class's template")
    becomes.add_argument("--keep", action="store_true", help="stays a class of its own")
    becomes.add_argument("--other", action="store_true", help="goes to /other")
    explain = commands.add_parser("explain", help="why a request gets its class, and what was found about it")
    explain.add_argument("class_id", metavar="CLASS", help="'service METHOD /path/template'")
    for one in (lists, pin, unpin, explain):
        one.add_argument("--json", action="store_true", help="one JSON value instead of text")


def run(args: argparse.Namespace) -> int:
    """Returns the exit status.

    0: done. 1: the store is unreachable, or there is no such rule. 64: the arguments are invalid.
    """
    settings = load(config.ClickHouseSettings)
    url = settings.clickhouse_url
    try:
        client = store.connect(settings.clickhouse_address)
        answer, text = _ACTIONS[args.action](client, args)
    except (StreamsError, ContractError) as error:
        print(f"error: {error}", file=sys.stderr)
        return exit_codes.USAGE
    except (Error, OSError) as error:
        print(f"error: {url.rpartition('@')[2]}: {error}", file=sys.stderr)
        return 1
    print(json.dumps(answer) if args.json else text)
    return 0 if answer else 1


def _now_ms(client: Client) -> int:
    """Returns the time of the server, because the operator's clock may be wrong."""
    [(now,)] = client.execute("SELECT toUnixTimestamp64Milli(now64(3))")
    return now


def _in_force(client: Client, service: str | None) -> list[Rule]:
    """Returns the rules that are in force or will be within DELAY_MS."""
    known = tables.read_rules(client.execute(tables.RULES_SQL))
    held = rules.in_force(known, _now_ms(client) + rules.DELAY_MS)
    return [rule for rule in held if service in (None, rule.service)]


def _list(client: Client, args: argparse.Namespace) -> tuple[dict, str]:
    held = _in_force(client, args.service)
    by_service = rules.by_service(held)
    found = []
    for one in tables.read_findings(client.execute(tables.FINDINGS_SQL)):
        service, method, template = one.class_.split(" ")
        rule = rules.match(by_service.get(service, []), method, template)
        if args.service in (None, service) and (
            rule is None or not rule.template or rule.becomes == template
        ):
            found.append(one)
    answer = {"classes": [_finding(one) for one in found], "rules": [asdict(rule) for rule in held]}
    lines = [f"{len(found)} classes, {len(held)} rules", ""]
    lines += [
        f"{o.class_}  {o.verdict}  {o.requests:.0f} requests  {o.exclusive_p50_ms:.3g} ms  {o.reason}"
        for o in found
    ]
    lines += ["", *map(_line, held)]
    return answer, "\n".join(lines)


def _finding(one: findings.Finding) -> dict:
    return dict(zip(findings.COLUMNS, asdict(one).values(), strict=True))


def _line(rule: Rule) -> str:
    what = f"{rule.template or 'all others'} -> {rule.becomes}"
    return f"{rule.kind}  {rule.service} {rule.method or '*'} {what}  {rule.author}: {rule.reason}"


def _pin(client: Client, args: argparse.Namespace) -> tuple[dict, str]:
    template = pattern.check(args.template, wildcards=not args.keep)
    becomes = (
        pattern.OTHER
        if args.other
        else template
        if args.keep
        else pattern.check(args.becomes, wildcards=False)
    )
    traffic_class.parse(f"{args.service} {args.method or 'GET'} {becomes}")
    if becomes != pattern.OTHER and not pattern.covers(becomes, template):
        raise StreamsError(
            f"--becomes {becomes}: does not match every path of {template}; Envoy routes a class by its one "
            "template, so there must be the same segments, or variables, at each position"
        )
    return _write(client, args, template, becomes, rules.PINNED)


def _unpin(client: Client, args: argparse.Namespace) -> tuple[dict, str]:
    held = [rule for rule in _in_force(client, args.service) if rule.kind == rules.PINNED]
    if not any((rule.method, rule.template) == (args.method, args.template) for rule in held):
        pins = "\n".join(map(_line, held)) or "none"
        return {}, f"no such pin of {args.service}; pins:\n{pins}"
    return _write(client, args, args.template, "", rules.UNPINNED)


def _write(
    client: Client, args: argparse.Namespace, template: str, becomes: str, kind: str
) -> tuple[dict, str]:
    now = _now_ms(client)
    rule = Rule(
        now, now + rules.DELAY_MS, args.service, args.method, template, becomes, kind, args.by, args.reason
    )
    sql = f"INSERT INTO {tables.RULES} ({', '.join(rules.COLUMNS)}) VALUES"
    client.execute(sql, [astuple(rule)])
    return asdict(rule), f"{_line(rule)}\nin force in {rules.DELAY_MS // 1000} s"


def _explain(client: Client, args: argparse.Namespace) -> tuple[dict, str]:
    wanted = traffic_class.parse(args.class_id)
    held = _in_force(client, wanted.service)
    rule = rules.match(held, wanted.method, wanted.path_template)
    becomes = rule.becomes if rule else wanted.path_template
    class_id = f"{wanted.service} {wanted.method} {becomes}"
    makers = [one for one in held if one.becomes == becomes and one.method in ("", wanted.method)]
    found = [
        one for one in tables.read_findings(client.execute(tables.FINDINGS_SQL)) if one.class_ == class_id
    ]
    finding = _finding(found[0]) if found else None
    answer = {
        "class": class_id,
        "rule": asdict(rule) if rule else None,
        "makers": [asdict(one) for one in makers],
        "finding": finding,
    }
    lines = [
        f"class   {class_id}",
        f"by      {_line(rule) if rule else 'its own template, no rule names it'}",
    ]
    lines += [f"made by {_line(one)}" for one in makers if one != rule]
    lines += [f"{name:18}{value}" for name, value in (finding or {"found": "nothing yet"}).items()]
    return answer, "\n".join(lines)


_ACTIONS = {"list": _list, "pin": _pin, "unpin": _unpin, "explain": _explain}
