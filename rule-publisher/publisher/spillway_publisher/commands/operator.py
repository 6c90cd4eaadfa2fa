"""The logic of status, rollback, reset-fence, act, acts and validate.

Pure, except that validate reads a file.
"""

import json
import re
import uuid
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime, time, timedelta
from pathlib import Path

from google.protobuf import json_format
from spillway.v1.ruleset_pb2 import ORIGIN_OPERATOR, Origin, Ruleset
from spillway.v1.topology_pb2 import Topology
from spillway_contracts import ContractError, slices
from spillway_contracts.acts import Act, KeptAct

from spillway_publisher.rules.checks import contract_problems

SECOND = 10**9


class OperatorError(Exception):
    """The operator's request cannot be done; the message says what is allowed."""


def status_rows(
    in_force: Mapping[str, Ruleset],
    acknowledged: Mapping[tuple[str, int], tuple[int, int]] | None,
    now_ns: int,
) -> list[dict]:
    """Returns one row per cluster: its ruleset, age, time to expiry, and the Envoys' answers.

    `acknowledged`: (cluster, version) -> (acks, nacks); None when ClickHouse did not answer.
    """
    result = []
    for cluster, ruleset in sorted(in_force.items()):
        acks, nacks = (
            (None, None) if acknowledged is None else acknowledged.get((cluster, ruleset.version), (0, 0))
        )
        result.append(
            {
                "cluster": cluster,
                "version": ruleset.version,
                "policy": ruleset.policy,
                "origin": Origin.Name(ruleset.origin).removeprefix("ORIGIN_").lower(),
                "rules": len(ruleset.rules),
                "age_s": round((now_ns - ruleset.created_at.ToNanoseconds()) / SECOND, 1),
                "expires_in_s": round((ruleset.expires_at.ToNanoseconds() - now_ns) / SECOND, 1),
                "trial_until": _trial_until(ruleset),
                "acks": acks,
                "nacks": nacks,
            }
        )
    return result


def _trial_until(ruleset: Ruleset) -> str:
    """Returns when relays end what is on trial at the latest; empty without a trial."""
    if not ruleset.HasField("canary"):
        return ""
    until = datetime.fromtimestamp(ruleset.canary.until.ToNanoseconds() / SECOND, UTC)
    return until.isoformat(timespec="seconds")


def format_table(table: list[dict], empty: str = "no ruleset was published yet") -> str:
    """Formats rows as a table for people. `empty`: what to say without rows.

    While `expires_in_s` is negative, relays hold the rules and give them up in steps.
    """
    if not table:
        return empty
    lines = [list(table[0]), *([("?" if v is None else str(v)) for v in row.values()] for row in table)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return "\n".join(
        "  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def choose_version(history: Mapping[str, list[Ruleset]], wanted: int | None) -> int:
    """Returns the version to go back to.

    It is the wanted one, or the latest whose rules differ from those in force. Raises
    OperatorError, which names the versions that every cluster still has.
    """
    complete = (
        set.intersection(*({r.version for r in found} for found in history.values())) if history else set()
    )
    newest = max((r.version for found in history.values() for r in found), default=0)
    allowed = sorted(complete - {newest})
    if not allowed:
        raise OperatorError("there is no earlier version to go back to")
    if wanted is None:
        now = _weights(whole(history, newest))
        wanted = next((v for v in reversed(allowed) if _weights(whole(history, v)) != now), None)
        if wanted is None:
            raise OperatorError(
                f"versions {allowed[0]} to {allowed[-1]} all have the rules in force; name one by --to"
            )
    elif wanted not in allowed:
        raise OperatorError(
            f"--to {wanted}: not in the history of every cluster; versions: {_ranges(allowed)}"
        )
    return wanted


def moment(text: str, now: datetime) -> int:
    """Returns the Unix milliseconds of a time in the past.

    `text`: `14:05`, `14:05:30` (the last such time) or an ISO date and time; UTC without a zone.
    Raises OperatorError.
    """
    wrong = (
        f"--before {text}: must be HH:MM, HH:MM:SS or an ISO date and time in the past; UTC without a zone"
    )
    try:
        if re.fullmatch(r"\d\d:\d\d(:\d\d)?", text):
            at = datetime.combine(now.date(), time.fromisoformat(text), UTC)
            at -= timedelta(days=1) if at > now else timedelta()
        else:
            at = datetime.fromisoformat(text)
            at = at if at.tzinfo else at.replace(tzinfo=UTC)
    except ValueError as error:
        raise OperatorError(wrong) from error
    if at > now:
        raise OperatorError(wrong)
    return round(at.timestamp() * 1000)


def checkpoint_rows(found: Iterable[Ruleset]) -> list[dict]:
    """Returns one row per checkpoint.

    `from` is the time of its version, from which on its weights were in force.
    """
    return [
        {
            "version": ruleset.version,
            "from": datetime.fromtimestamp(ruleset.version / 1000, UTC).isoformat(timespec="seconds"),
            "policy": ruleset.policy,
            "origin": Origin.Name(ruleset.origin).removeprefix("ORIGIN_").lower(),
            "rules": len(ruleset.rules),
            "id": ruleset.id,
        }
        for ruleset in found
    ]


def choose_checkpoint(found: list[Ruleset], in_force: Ruleset, asked: str) -> Ruleset:
    """Returns the first checkpoint, newest first, whose rules differ from those in force.

    When the operator asked for a time or version, `found` has only that checkpoint. Raises
    OperatorError.
    """
    if not found:
        raise OperatorError(
            f"{asked}: no checkpoint is that old and signed by SPILLWAY_RULESET_KEYS; see `history`"
        )
    now = _weights(in_force)
    for ruleset in found:
        if _weights(ruleset) != now:
            return ruleset
    raise OperatorError(f"{asked}: checkpoint {found[0].version} has the rules that are in force")


def whole(history: Mapping[str, list[Ruleset]], version: int) -> Ruleset:
    """Returns the ruleset of all clusters that was published under this version."""
    return slices.join(r for cluster in sorted(history) for r in history[cluster] if r.version == version)


def rollback(old: Ruleset, newest: int, reason: str, lifetime_s: float, now_ns: int) -> Ruleset:
    """Returns an operator's proposal with an earlier version's rules and their input window.

    `newest`: the version in force, which becomes the base version, so that another operator's
    change in the meantime refuses the proposal. 0: the bucket has none, and the proposal has no
    base version.
    """
    proposal = Ruleset()
    proposal.CopyFrom(old)
    for field in ("fencing_token", "reset_fences", "canary", "concludes"):
        proposal.ClearField(field)
    if newest:
        proposal.base_version = newest
    proposal.ClearField("denials")  # the publisher sets the present ones
    proposal.id = f"rollback-{old.version}-{uuid.uuid4()}"
    proposal.version = 0
    proposal.origin = ORIGIN_OPERATOR
    proposal.created_at.FromNanoseconds(now_ns)
    proposal.expires_at.FromNanoseconds(now_ns + int(lifetime_s * SECOND))
    for rule in proposal.rules:
        rule.reason = f"rollback to version {old.version}: {reason}"
    return proposal


def reset_fences(origins: Collection[str], reason: str, now_ns: int) -> Ruleset:
    """Returns a proposal that keeps what is in force and resets these origins' fencing tokens."""
    proposal = Ruleset(id=f"reset-fence-{uuid.uuid4()}", origin=ORIGIN_OPERATOR)
    proposal.reset_fences.extend(Origin.Value(f"ORIGIN_{origin.upper()}") for origin in origins)
    proposal.reason = f"fencing tokens of {', '.join(origins)} reset: {reason}"
    proposal.created_at.FromNanoseconds(now_ns)
    return proposal


def act(kind: str, reason: str, actor: str, now: datetime, lifetime_s: float | None, **target: object) -> Act:
    """Returns an act of the operator at this command. `lifetime_s` None: it ends another one.

    `target`: what the kind of act needs. Raises OperatorError when it breaks the contract.
    """
    values: dict[str, object] = {
        "id": f"{kind.replace('_', '-')}-{uuid.uuid4().hex[:12]}",
        "act": kind,
        "reason": reason,
        "actor": actor,
        "issuer": "os",
        "via": "operator",
        **{key: value for key, value in target.items() if value is not None},
    }
    if lifetime_s is not None:
        values["expires"] = (now + timedelta(seconds=lifetime_s)).isoformat()
    try:
        return Act.from_json(json.dumps(values))
    except ContractError as error:
        raise OperatorError(str(error)) from error


def accepted(act: Act, kept: KeptAct) -> str:
    """Returns what became of the act, and the command that undoes it."""
    if act.act == "end":
        return f"{kept.act.id} has ended: {kept.act.act} no longer applies"
    until = kept.expires.isoformat(timespec="seconds")
    changed = f"{kept.before} is now {kept.after}" if kept.before != kept.after else f"{kept.after} as before"
    return (
        f"{act.id} is in force until {until}: {act.act}, {changed}\n"
        f"to end it: python -m spillway_publisher act end {act.id} --reason TEXT"
    )


def act_rows(found: Iterable[KeptAct], now: datetime, every: bool) -> list[dict]:
    """Returns one row per act, oldest first. `every`: also those that have ended or expired."""
    return [
        {
            "id": kept.act.id,
            "act": kept.act.act,
            "target": kept.act.target,
            "state": "in force" if kept.in_force(now) else "ended" if kept.ended_by else "expired",
            "until": (kept.ended_at or kept.expires).astimezone(UTC).isoformat(timespec="seconds"),
            "actor": kept.act.actor,
            "issuer": kept.act.issuer,
            "via": kept.act.via,
            "at": kept.at.astimezone(UTC).isoformat(timespec="seconds"),
            "before": kept.before,
            "after": kept.after,
            "reason": kept.act.reason,
            "ended_by": kept.ended_by.actor if kept.ended_by else "",
        }
        for kept in sorted(found, key=lambda kept: (kept.at, kept.act.id))
        if every or kept.in_force(now)
    ]


def validate(path: Path, topology: Topology) -> list[str]:
    """Returns everything that is wrong in a ruleset file (protobuf JSON).

    Each line names the file and the key.
    """
    try:
        ruleset = json_format.Parse(path.read_text(), Ruleset())
    except (OSError, UnicodeDecodeError, json_format.ParseError) as error:
        return [f"{path}: cannot be read: {error}"]
    return [f"{path}: {problem}" for problem in contract_problems(ruleset, topology)]


def _weights(ruleset: Ruleset) -> dict:
    return {
        (r.source_cluster, r.source_service, r.traffic_class.SerializeToString()): {
            d.cluster: d.weight for d in r.destinations if d.weight
        }
        for r in ruleset.rules
    }


def _ranges(versions: list[int]) -> str:
    """Formats versions as ranges: 1, 2, 3, 7 -> "1-3, 7"."""
    parts: list[list[int]] = []
    for version in versions:
        if parts and version == parts[-1][1] + 1:
            parts[-1][1] = version
        else:
            parts.append([version, version])
    return ", ".join(f"{a}-{b}" if a != b else str(a) for a, b in parts)
