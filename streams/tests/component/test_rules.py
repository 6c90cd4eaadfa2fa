"""The class rules that `exclusive` reads, with a real ClickHouse."""

import asyncio
import time

from clickhouse_driver import Client
from spillway_runtime.status import Status
from spillway_streams.clients.store import Store
from spillway_streams.ingest.class_rules import RulesReader

_HOUR_S = 3600


def test_rules_are_read_as_far_back_as_there_are_messages(clickhouse: Client, clickhouse_url: str):
    """The log has messages of the last two hours.

    Of the rules that took effect before that, the newest of each key may still have been in force,
    and only these are read. An operator's rules and the job's rules have separate keys. All later
    rules are read, including those of the future. Without a limit, all rules are read.
    """
    now_ms, hour_ms = int(time.time() * 1000), _HOUR_S * 1000
    rules = [  # hours from now, template, becomes, kind
        (-9, "/a", "/1", "learned"),
        (-5, "/a", "/2", "learned"),
        (-8, "/a", "/3", "pinned"),
        (-7, "/b", "", "retired"),
        (-1, "/a", "/4", "merged"),
        (-0.5, "/a", "/5", "learned"),
        (1, "/a", "/6", "learned"),
    ]
    rows = [
        (now_ms - 10 * hour_ms, now_ms + int(h * hour_ms), "shop", "GET", *rule, "test", "because")
        for h, *rule in rules
    ]
    columns = "written_at, effective_from, service, method, template, becomes, kind, author, reason"
    clickhouse.execute(f"INSERT INTO class_rules ({columns}) VALUES", rows)

    def read(oldest_s: int | None) -> list[tuple]:
        reader = RulesReader(Store(clickhouse_url, Status(Store.NAME)), oldest_s)
        return [rule[3:] for rule in asyncio.run(reader.read()) if rule[1] == "shop"]

    in_time = [tuple(rule) for _, *rule in sorted(rules)]
    assert read(None) == in_time
    assert read(2 * _HOUR_S) == [rule for rule in in_time if rule != ("/a", "/1", "learned")]
