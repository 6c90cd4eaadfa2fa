"""One version of skew: today's contracts must keep what the previous version uses."""

import json
from pathlib import Path

import pytest
import yaml
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorSet
from spillway.v1 import acknowledgement_pb2, heartbeat_pb2, ruleset_pb2, topology_pb2
from spillway_contracts import ContractError, hot_state

CONTRACTS = Path(__file__).resolve().parents[2]
[PREVIOUS] = (CONTRACTS / "golden" / "previous").iterdir()
MODULES = (acknowledgement_pb2, heartbeat_pb2, ruleset_pb2, topology_pb2)


def today() -> FileDescriptorSet:
    """Returns the descriptors of today's messages."""
    found = FileDescriptorSet()
    for module in MODULES:
        module.DESCRIPTOR.CopyToProto(found.file.add())
    return found


def messages(files: FileDescriptorSet) -> dict[str, DescriptorProto]:
    """Returns the messages by their full names."""
    return {f"{file.package}.{m.name}": m for file in files.file for m in file.message_type}


def shape(field: FieldDescriptorProto) -> tuple:
    """Returns the properties of a field that must not change."""
    return (
        field.name,
        field.type,
        field.label,
        field.type_name,
        field.oneof_index if field.HasField("oneof_index") else None,
    )


def breaks(before: FileDescriptorSet, after: FileDescriptorSet) -> list[str]:
    """Returns the messages, fields and enum values of `before` that `after` removes or changes."""
    found, now = [], messages(after)
    for name, message in messages(before).items():
        fields = {field.number: field for field in now[name].field} if name in now else {}
        for field in message.field:
            if field.number not in fields:
                found.append(f"{name}.{field.name}: {field.number} is gone")
            elif shape(field) != shape(fields[field.number]):
                found.append(f"{name}.{field.name}: {field.number} was changed")
    values = {(e.name, v.number): v.name for file in after.file for e in file.enum_type for v in e.value}
    for file in before.file:
        for enum in file.enum_type:
            for value in enum.value:
                if values.get((enum.name, value.number)) != value.name:
                    found.append(f"{enum.name}.{value.name}: {value.number} was changed or is gone")
    return found


def previous() -> FileDescriptorSet:
    """Returns the descriptors of the previous version's messages."""
    return FileDescriptorSet.FromString((PREVIOUS / "descriptors.binpb").read_bytes())


def test_no_message_loses_or_changes_a_field():
    """Both versions read the same bytes alike: every field keeps its number, type and name."""
    assert breaks(previous(), today()) == []


def test_a_changed_a_removed_and_a_renamed_field_are_found():
    """The comparison itself names each kind of break, and accepts an added field."""
    changed = today()
    [ruleset] = [m for file in changed.file for m in file.message_type if m.name == "Ruleset"]
    ruleset.field.add(name="new", number=99, type=FieldDescriptorProto.TYPE_STRING)
    assert breaks(previous(), changed) == []
    by_name = {field.name: field for field in ruleset.field}
    by_name["version"].type = FieldDescriptorProto.TYPE_STRING
    by_name["policy"].name = "strategy"
    ruleset.field.remove(by_name["rules"])
    assert [line.split(":")[0] for line in breaks(previous(), changed)] == [
        "spillway.v1.Ruleset.version", "spillway.v1.Ruleset.policy", "spillway.v1.Ruleset.rules",
    ]  # fmt: skip


def test_no_name_on_a_wire_changes():
    """Topics, subjects, keys, headers and attributes keep the names of the previous version.

    Users of NATS and their inboxes are excluded. They are credentials, which change together with
    the permissions that are made for them.
    """
    before = yaml.safe_load((PREVIOUS / "names.yaml").read_text())
    now = yaml.safe_load((CONTRACTS / "names.yaml").read_text())
    gone = {
        f"{group}.{key}"
        for group, entries in before.items()
        if group not in ("nats_user", "nats_inbox")
        for key, value in entries.items()
        if now.get(group, {}).get(key) != value
    }
    assert gone == set()


def test_released_tables_are_not_edited():
    """Files that a database of the previous version has applied are the same, byte for byte."""
    for path in (PREVIOUS / "clickhouse").glob("*.sql"):
        assert (CONTRACTS / "clickhouse" / path.name).read_bytes() == path.read_bytes(), path.name


BOARDS = {
    "load": hot_state.LoadBoardEntry,
    "demand": hot_state.DemandEntry,
    "network": hot_state.NetworkEntry,
}


@pytest.mark.parametrize("name", BOARDS)
def test_boards_are_read_across_versions(name):
    """Entries of the previous version are read, and keys that the next version adds are ignored.

    Our own keys are those of the previous version, because it refuses entries without them.
    """
    stored = json.loads((PREVIOUS / "redis_streams.json").read_text())[name]
    entries = list(stored.values())
    if name != "network":
        entries = [entry for board in entries for entry in board.values()]
    assert entries
    for entry in entries:
        read = BOARDS[name].from_json(json.dumps(entry))
        assert json.loads(read.to_json()) == entry
        assert BOARDS[name].from_json(json.dumps(entry | {"added_tomorrow": [1]})) == read
        with pytest.raises(ContractError, match="missing 'at'"):
            BOARDS[name].from_json(json.dumps({k: v for k, v in entry.items() if k != "at"}))
