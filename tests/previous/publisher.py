"""Writes the publisher's results for the proposal that optimizer.py has written.

They are the values of the bucket and of Redis, and the rows for ClickHouse.
"""

import json
import os
from datetime import UTC, datetime
from pathlib import Path

from spillway.v1.acknowledgement_pb2 import OUTCOME_NACK, Acknowledgement
from spillway.v1.heartbeat_pb2 import Heartbeat
from spillway.v1.ruleset_pb2 import Ruleset
from spillway_contracts import slices
from spillway_publisher.clients import hot_state, rows

OUT = Path(os.environ["SPILLWAY_PREVIOUS"])
AT = datetime(2026, 1, 1, 0, 1, tzinfo=UTC)
proposal = Ruleset.FromString((OUT / "proposal.binpb").read_bytes())
proposal.denials.add(source_cluster="west", clusters=["east"]).traffic_class.CopyFrom(
    proposal.traffic_classes[0]
)
parts = slices.cut(proposal, ["east", "west"], 7)
for cluster, part in parts.items():
    (OUT / f"ruleset_{cluster}.binpb").write_bytes(part.SerializeToString(deterministic=True))
heartbeat = Heartbeat(cluster="west", ttl_seconds=10, ruleset_version=7)
heartbeat.at.FromDatetime(AT)
heartbeat.services.add(service="gateway", connected_envoys=2)
redis = {"in_force": hot_state.to_json(parts["west"]), "placement": hot_state.to_json(heartbeat)}
(OUT / "redis_publisher.json").write_text(json.dumps(redis, indent=1) + "\n")
acknowledgement = Acknowledgement(
    cluster="west",
    service="gateway",
    envoy="gateway-0",
    ruleset_version=7,
    type_url="rds",
    outcome=OUTCOME_NACK,
)
acknowledgement.at.FromDatetime(AT)
acknowledgement.detail = "weights sum to 0"
inserts = [
    (
        rows.sql("insert_rulesets"),
        [rows.ruleset_row(parts["west"], 7, rows.PUBLISHED, "within guardrails", AT)],
    ),
    (rows.sql("insert_rules"), rows.rule_rows(parts["west"], 7, AT)),
    (rows.sql("insert_transitions"), [rows.transition_row(parts["west"], 7, rows.PUBLISHED, "", AT)]),
    (rows.sql("insert_acknowledgements"), [rows.acknowledgement_row(acknowledgement)]),
]
(OUT / "inserts_publisher.json").write_text(json.dumps(inserts, default=str, indent=1) + "\n")
