"""Unknown parts of the mesh.

No weight towards them rises or falls, and the rest is solved as usual.
"""

import random

import pytest
from mesh import NOW, Mesh
from spillway_contracts import names
from spillway_contracts.hot_state import UnknownEntry
from spillway_optimizer.problem.rules import of_ruleset
from two_applications import OTHER, SERVICES

ENTRY = "gateway GET /items/{id}"
THIRD = "south"


@pytest.fixture
def mesh(settings, tmp_path):
    return Mesh(settings, tmp_path, THIRD, demand_half_life_s=0)


def _times(cluster, factor, class_id=ENTRY):
    def change(d):
        for board in ("demand", "load"):
            d[board][cluster][class_id]["rps"] *= factor

    return change


def _stale(cluster, age=60.0):
    def change(d):
        for board in ("demand", "load"):
            for entry in d[board][cluster].values():
                entry["at"] -= age

    return change


def _all(*changes):
    def change(d):
        for edit in changes:
            edit(d)

    return change


def _towards(rules, cluster):
    return {key: weights.get(cluster, 0) for key, weights in rules.items() if key.source_cluster != cluster}


async def test_a_stale_board_holds_its_cluster_and_no_other(mesh):
    """East's boards are a minute old, so its own rules and every weight towards it stay.

    West's new load goes to south. The other application's load is unchanged, and so are all its
    rules.
    """
    await mesh.solve(NOW, _times("west", 1.2))
    before, other = mesh.rules(), mesh.rules(OTHER)
    rows = await mesh.solve(NOW + 5, _all(_times("west", 1.6), _stale("east")), "load")
    after = mesh.rules()
    assert rows["gateway"]["outcome"] == "proposed"
    assert rows[OTHER + "gateway"]["outcome"] == "renewed" and mesh.rules(OTHER) == other
    assert _towards(after, "east") == _towards(before, "east")
    assert {k: w for k, w in after.items() if k[0] == "east"} == {
        k: w for k, w in before.items() if k[0] == "east"
    }
    assert sum(_towards(after, THIRD).values()) > sum(_towards(before, THIRD).values())
    note = "unknown: 'east': demand: board of 'east' is 61 s old; at most 15 s is allowed; its demand"
    assert any(message.startswith(note) for message in rows["gateway"]["notes"])


async def test_a_service_that_streams_do_not_know_is_held_alone(mesh):
    """Streams state that the backend in east is unknown.

    Weights towards it stay. Weights towards east's frontend may change.
    """
    await mesh.solve(NOW, _times("west", 1.2))
    before = mesh.rules()
    mesh.unknown = {"east": {"backend": UnknownEntry(NOW, "no spans of partition 3")}}
    rows = await mesh.solve(NOW + 5, _times("west", 1.6), "load")
    backends = {key: w for key, w in before.items() if key[2].startswith("backend")}
    after = {key: w for key, w in mesh.rules().items() if key in backends}
    assert _towards(after, "east") == _towards(backends, "east") and mesh.rules() != before
    assert any(
        "'backend' in 'east': no spans of partition 3, known until 5 s ago" in n
        for n in rows["gateway"]["notes"]
    )


async def test_demand_of_an_unknown_cluster_is_the_last_known(mesh):
    """Its boards fade while the hash of unknowns names the cluster. The demand does not change."""
    await mesh.solve(NOW)
    known = mesh.solving.demand["west", ENTRY]
    mesh.unknown = {"west": {names.VALUE_WHOLE_CLUSTER: UnknownEntry(NOW, "the collector is silent")}}
    await mesh.solve(NOW + 5, _times("west", 0.1), "load")
    assert mesh.solving.demand["west", ENTRY] == known

    def gone(d):
        d["demand"]["west"].clear()
        d["load"]["west"].clear()

    rows = await mesh.solve(NOW + 20, gone)
    assert mesh.solving.demand["west", ENTRY] == known and rows["gateway"]["outcome"] == "renewed"
    mesh.unknown = {}
    await mesh.solve(NOW + 25, _times("west", 0.1))
    assert mesh.solving.demand["west", ENTRY] == pytest.approx(known * 0.1)


async def test_a_missing_heartbeat_is_unknown_and_a_fresh_one_without_the_service_is_gone(mesh):
    """While east's relays are silent, weights towards it stay.

    When they return without the backend, it loses its calls at once.
    """
    await mesh.solve(NOW, _times("west", 1.2))
    before = mesh.rules()
    mesh.placement = {**mesh.placement, "east": None}
    await mesh.solve(NOW + 5, _times("west", 1.6), "load")
    assert _towards(mesh.rules(), "east") == _towards(before, "east")
    mesh.placement = {**mesh.placement, "east": SERVICES - {"backend"}}
    await mesh.solve(NOW + 10, _times("west", 1.6), "placement")
    assert not any(w.get("east") for key, w in mesh.rules().items() if key[2].startswith("backend"))


async def test_when_nothing_is_known_everything_is_held(mesh):
    """All boards are empty, as after a loss of Redis.

    Rules are renewed unchanged as long as that lasts.
    """
    await mesh.solve(NOW)
    before, other = mesh.rules(), mesh.rules(OTHER)

    def empty(d):
        d["demand"], d["load"] = {}, {}

    for n in range(1, 12):
        rows = await mesh.solve(NOW + 16 * n, empty)
        assert {row["outcome"] for row in rows.values()} == {"renewed"}
    assert mesh.rules() == before and mesh.rules(OTHER) == other
    assert all(reason.startswith("held: nothing is known now") for reason in mesh.reasons().values())


async def test_a_new_leader_holds_what_it_finds_in_force(settings, tmp_path):
    """It has never seen a fresh board of east.

    Rules towards east stay as the previous leader published them.
    """
    first = Mesh(settings, tmp_path, THIRD)
    await first.solve(NOW, _times("west", 1.3))
    second = Mesh(settings, tmp_path, THIRD)
    second.in_force = first.in_force
    await second.solve(NOW + 5, _all(_times("west", 1.8), _stale("east")), "start")
    assert _towards(second.rules(), "east") == _towards(first.rules(), "east")


@pytest.mark.parametrize("policy", ["spillway", "waterfall", "round-robin"])
@pytest.mark.parametrize("seed", range(3))
async def test_no_weight_towards_what_is_unknown_rises_or_collapses(settings, tmp_path, seed, policy):
    """Loads are random, and boards, heartbeats and spans of single services are lost at random."""
    chance = random.Random(seed)
    mesh = Mesh(settings, tmp_path, THIRD, policy=policy)
    await mesh.solve(NOW)
    for n in range(1, 13):
        now = NOW + 6.0 * n
        mesh.unknown, mesh.placement, changes = {}, dict.fromkeys(mesh.clusters, SERVICES), []
        clusters, services = set(), set()
        for cluster in mesh.clusters:
            for prefix in ("", OTHER):
                changes.append(_times(cluster, chance.uniform(0.3, 1.8), prefix + ENTRY))
            kind = chance.choice(["", "", "", "stale", "whole", "heartbeat", "service"])
            if kind == "stale":
                changes.append(_stale(cluster))
            elif kind == "heartbeat":
                mesh.placement[cluster] = None
            elif kind == "whole":
                mesh.unknown[cluster] = {"*": UnknownEntry(now - 9, "no spans")}
                changes.append(_times(cluster, 0.01))
            elif kind == "service":
                mesh.unknown[cluster] = {"backend": UnknownEntry(now - 9, "no spans")}
                services.add((cluster, "backend"))
            clusters |= {cluster} if kind in ("stale", "heartbeat", "whole") else set()
        before = of_ruleset(mesh.sent[-1])
        await mesh.solve(now, _all(*changes), chance.choice(["period", "load"]))
        after = of_ruleset(mesh.sent[-1])
        for key, weights in before.items():
            service = key.class_id.partition(" ")[0]
            for cluster in mesh.clusters:
                if cluster in clusters or (cluster, service) in services:
                    assert after[key].get(cluster, 0) == weights.get(cluster, 0), (n, key, cluster)
            if key.source_cluster in clusters or (key.source_cluster, key.source_service) in services:
                assert after[key] == weights, (n, key)


async def test_entries_that_stay_behind_on_a_fresh_board_are_unknown_and_no_zero(mesh):
    """The worker that writes the other application's services is away.

    Their entries age in every cluster, next to fresh ones. Their demand and rules stay, and the
    first application is not affected.
    """
    await mesh.solve(NOW)
    known = {key: rps for key, rps in mesh.solving.demand.items() if key[1].startswith(OTHER)}
    before, other = mesh.rules(), mesh.rules(OTHER)

    def behind(d):
        for board in ("load", "demand"):
            for entries in d[board].values():
                for class_id, entry in entries.items():
                    if class_id.startswith(OTHER):
                        entry["at"] = NOW

    assert known and other
    for n in range(2, 6):
        rows = await mesh.solve(NOW + 16 * n, behind)
        assert mesh.rules(OTHER) == other and mesh.rules() == before
        assert {key: mesh.solving.demand[key] for key in known} == known
    name = next(iter(known))[1].partition(" ")[0]
    assert any(
        f"unknown: {name!r} in " in note and "79 s older than the newest of its board" in note
        for note in rows[name]["notes"]
    )


def _gone(*clusters):
    def change(d):
        for cluster in clusters:
            d["demand"].pop(cluster, None)
            d["load"].pop(cluster, None)

    return change


def _known(now, *clusters):
    """Returns the statements of streams about clusters whose telemetry arrives."""
    return {cluster: dict.fromkeys(SERVICES, UnknownEntry(now - 1, "")) for cluster in clusters}


async def test_a_placed_cluster_that_no_board_has_is_unknown_and_not_idle(mesh):
    """Streams have forgotten south, whose Envoys are still connected.

    Its demand is the last known one, and its rules and the weights towards it stay. West's new load
    goes elsewhere as long as that lasts.
    """
    mesh.unknown = _known(NOW, *mesh.clusters)
    await mesh.solve(NOW, _times("west", 1.2))
    before, known = mesh.rules(), mesh.solving.demand[THIRD, ENTRY]
    for now in (NOW + 5, NOW + 60, NOW + 600):
        mesh.unknown = _known(now, "west", "east")
        rows = await mesh.solve(now, _all(_times("west", 1.6), _gone(THIRD)), "load")
        after = mesh.rules()
        assert _towards(after, THIRD) == _towards(before, THIRD)
        assert {k: w for k, w in after.items() if k[0] == THIRD} == {
            k: w for k, w in before.items() if k[0] == THIRD
        }
        assert mesh.solving.demand[THIRD, ENTRY] == known
    note = f"unknown: 'gateway' in '{THIRD}': it has Envoys, and neither the demand board nor streams say"
    assert any(message.startswith(note) for message in rows["gateway"]["notes"])


async def test_an_idle_cluster_that_streams_know_is_a_destination(settings, tmp_path):
    """South has Envoys whose counters show no requests, so it takes west's excess load.

    When the last statement of streams is too old, no more load goes there.
    """
    taken = []
    for age in (1, 60):
        mesh = Mesh(settings, tmp_path, THIRD, demand_half_life_s=0)
        mesh.unknown = {
            **_known(NOW, "west", "east"),
            THIRD: dict.fromkeys(SERVICES, UnknownEntry(NOW - age, "")),
        }
        await mesh.solve(NOW, _all(_times("west", 1.8), _gone(THIRD)))
        taken.append(sum(_towards(mesh.rules(), THIRD).values()))
    assert taken[0] > 0 and taken[1] == 0


async def test_a_service_that_streams_have_never_known_is_held_alone(mesh):
    """Neither counters nor spans of east's backend arrive. Weights towards it stay."""
    mesh.unknown = _known(NOW, *mesh.clusters)
    await mesh.solve(NOW, _times("west", 1.2))
    before = {key: w for key, w in mesh.rules().items() if key[2].startswith("backend")}
    mesh.unknown = _known(NOW + 5, *mesh.clusters)
    mesh.unknown["east"]["backend"] = UnknownEntry(0.0, "it sends neither counters nor spans")
    rows = await mesh.solve(NOW + 5, _times("west", 1.6), "load")
    after = {key: w for key, w in mesh.rules().items() if key in before}
    assert _towards(after, "east") == _towards(before, "east") and mesh.rules() != before
    note = "unknown: 'backend' in 'east': it sends neither counters nor spans; its demand"
    assert any(message.startswith(note) for message in rows["gateway"]["notes"])


async def test_what_streams_have_stated_once_they_are_asked_for_when_all_of_them_are_away(mesh):
    """Streams have stated everything. Then every worker is away.

    Redis has lost their fields and south's boards. South is unknown, not zero.
    """
    mesh.unknown = _known(NOW, *mesh.clusters)
    await mesh.solve(NOW, _times("west", 1.2))
    before, known = mesh.rules(), mesh.solving.demand[THIRD, ENTRY]
    mesh.unknown = {}
    for now in (NOW + 20, NOW + 600):
        await mesh.solve(now, _all(_times("west", 1.6), _gone(THIRD)), "load")
        assert _towards(mesh.rules(), THIRD) == _towards(before, THIRD)
        assert mesh.solving.demand[THIRD, ENTRY] == known


async def test_an_entry_that_cannot_be_read_is_no_statement(mesh):
    """Streams of 0.1.0 state nothing, and one entry of east's board cannot be read.

    East's backend is unknown. South has no board, and is idle as before.
    """
    mesh.unknown = {"east": {"backend": UnknownEntry(0.0, "LoadBoardEntry.rps: missing")}}
    await mesh.solve(NOW, _all(_times("west", 1.2), _gone(THIRD)))
    assert mesh.solving.unknown.why("backend", "east") and not mesh.solving.unknown.why("gateway", THIRD)
    assert mesh.solving.demand.get((THIRD, ENTRY), 0.0) == 0.0


def _silent(prefix):
    """Removes these services from the demand boards, but not from the load boards.

    The worker that writes demand and statements has not returned. The other worker never left.
    """

    def change(d):
        for entries in d["demand"].values():
            for class_id in [class_id for class_id in entries if class_id.startswith(prefix)]:
                del entries[class_id]

    return change


async def test_what_only_the_load_board_shows_is_unknown_until_streams_state_it(mesh):
    """After an absence, only the first application's partitions are live again.

    The other application has no demand entries and no statements, but the load board shows it. Its
    demand and its rules stay.
    """
    mesh.unknown = _known(NOW, *mesh.clusters)
    await mesh.solve(NOW)
    before, other = mesh.rules(), mesh.rules(OTHER)
    known = {key: rps for key, rps in mesh.solving.demand.items() if key[1].startswith(OTHER)}
    for now in (NOW + 16, NOW + 32, NOW + 700):
        message = _known(now, *mesh.clusters)
        mesh.unknown = {
            c: {s: e for s, e in of.items() if not s.startswith(OTHER)} for c, of in message.items()
        }
        rows = await mesh.solve(now, _silent(OTHER))
        assert {name: row["outcome"] for name, row in rows.items()} == {
            "gateway": "renewed",
            OTHER + "gateway": "renewed",
        }
        assert mesh.rules() == before and mesh.rules(OTHER) == other
        assert {key: mesh.solving.demand[key] for key in known} == known
    note = f"unknown: '{OTHER}gateway' in 'west': it has Envoys, and neither the demand board nor streams say"
    assert any(message.startswith(note) for message in rows[OTHER + "gateway"]["notes"])
