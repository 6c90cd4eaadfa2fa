"""Every value is signed.

Publishers and operators' commands ignore values without a trusted signature.
"""

import os

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from spillway_contracts import names, slices
from spillway_lab.testing.waiting import eventually_async
from spillway_publisher.bucket import signing

pytestmark = pytest.mark.component

SPREAD = {"north": {"north": 4000, "south": 6000}, "south": {"south": 10_000}}
LOCAL = {"north": {"north": 10_000}, "south": {"south": 10_000}}
CLUSTERS = ("north", "south", "island")
KEY_ID = names.NATS_HEADER_KEY_ID


async def published(world, proposal) -> int:
    await world.propose(proposal)
    return await world.published(proposal)


async def signers(world) -> set[str]:
    return {(await world.headers(cluster))[KEY_ID] for cluster in CLUSTERS}


def id_of(key) -> str:
    return signing.key_id(key.public_key())


async def counted(world, process, counter: str, least: int) -> None:
    counters = {}

    def enough() -> bool:
        counters.update(world.health(process)["counters"])
        return counters.get(counter, 0) >= least

    await eventually_async(enough, f"{counter} is {least}", seen=lambda: counters)


async def test_every_key_is_signed_for_its_cluster(world, make):
    """The headers of each value verify with the public key, for that cluster and no other."""
    world.publisher()
    await published(world, make(SPREAD))
    js, trusted = await world.jetstream(), {id_of(world.key): world.key.public_key()}
    for cluster in CLUSTERS:
        found = await js.get_msg("KV_spillway_rulesets", subject=f"$KV.spillway_rulesets.{cluster}")
        assert signing.verify(trusted, cluster, found.data, found.headers) == id_of(world.key)
        with pytest.raises(signing.UnverifiedError):
            signing.verify(trusted, "elsewhere", found.data, found.headers)


async def test_forged_values_are_counted_and_replaced(world, make):
    """Values are unsigned, signed by another key, signed for another cluster, or signed garbage.

    None of them is in force. Each is counted once by its reason, and the next proposal replaces it.
    """
    process = world.publisher()
    before = await published(world, make(SPREAD))
    parts = slices.cut(make(LOCAL), list(CLUSTERS), 2**53 - 1)
    values = {cluster: parts[cluster].SerializeToString() for cluster in CLUSTERS}
    stranger = Ed25519PrivateKey.generate()
    await world.put("island", values["island"], signing.sign(stranger, "island", values["island"]))
    await world.put("north", values["north"], {})
    await world.put("south", values["north"], signing.sign(world.key, "north", values["north"]))
    for reason in ("unknown_key", "unsigned", "bad_signature"):
        await counted(world, process, f"malformed.bucket_value.{reason}", 1)
    await world.put("north", b"\xff")
    await counted(world, process, "malformed.bucket_value.undecodable", 1)
    assert before < await published(world, make(SPREAD)) < 2**52
    counters = world.health(process)["counters"]
    found = {k: n for k, n in counters.items() if k.startswith("malformed.bucket_value")}
    assert set(found.values()) == {1} and len(found) == 4
    assert (await signers(world)) == {id_of(world.key)}


async def test_a_version_far_ahead_keeps_nothing_out(world, make):
    """A publisher with a wrong clock, or a thief of the key, has signed a version of the future.

    The value is counted, and relays refuse it too. The next version is the present time, not one
    above the value's version.
    """
    process = world.publisher()
    before = await published(world, make(SPREAD))
    ahead = before + 2 * names.VALUE_VERSION_AHEAD_MS
    for cluster, part in slices.cut(make(LOCAL), list(CLUSTERS), ahead).items():
        payload = part.SerializeToString()
        await world.put(cluster, payload, signing.sign(world.key, cluster, payload))
    await counted(world, process, "malformed.bucket_value.ahead", len(CLUSTERS))
    assert before < await published(world, make(SPREAD)) < ahead


async def test_a_forged_history_is_not_rolled_back_to(world, make):
    """The operator's commands leave out values without a trusted signature, and report them."""
    world.publisher()
    genuine = await published(world, make(LOCAL))
    forged = slices.cut(make({"north": {"south": 10_000}}), list(CLUSTERS), genuine + 1)
    for cluster, part in forged.items():
        await world.put(cluster, part.SerializeToString(), {})
    await published(world, make(SPREAD))
    # The forged version was never in force, so this goes back to the checkpoint before it.
    done = world.command("rollback", "--to", str(genuine + 1), "--reason", "x")
    assert done.returncode == 0, done.stderr
    assert "SPILLWAY_RULESET_KEYS did not sign (bucket_value.unsigned: 3)" in done.stderr
    assert done.stdout.endswith(f"the rules of version {genuine}\n")
    await world.put("south", b"rules", {})
    done = world.command("status")
    assert done.returncode == 0 and "did not sign (bucket_value.unsigned: 1)" in done.stderr
    assert "south" not in done.stdout and "north" in done.stdout


async def test_keys_are_rotated_without_a_restart(world, make):
    """The new key is trusted, then publishers sign with it, then the old key is dropped.

    Values in force are signed again at once, and proposals continue. A bad new file only raises a
    counter.
    """
    process, old = world.publisher(), world.key
    first = make(SPREAD)
    version = await published(world, first)
    (world.folder / "signing.key").write_bytes(b"rubbish")
    await counted(world, process, "keys.wrong", 1)
    version = await published(world, make(LOCAL))
    assert await signers(world) == {id_of(old)}
    new = world.new_key()
    world.trust(old, new)

    async def signed_by_new() -> bool:
        return await signers(world) == {id_of(new)}

    await eventually_async(signed_by_new, "what is in force signed by the new key")
    assert (await world.value("north")).version == version
    world.trust(new)
    world.key = new
    assert await published(world, make(SPREAD)) > version
    assert await signers(world) == {id_of(new)}
    assert process.log.read_text().count('"message": "starting"') == 1


async def test_what_a_dropped_key_signed_is_not_signed_again(world, make):
    """A stolen key is dropped and replaced at once.

    The new key does not sign the values that the stolen key had signed.
    """
    process, old = world.publisher(), world.key
    await published(world, make(SPREAD))
    process.stop()
    new = world.new_key()
    world.trust(new)
    process.start()
    await counted(world, process, "malformed.bucket_value.unknown_key", 3)
    assert await signers(world) == {id_of(old)}
    await published(world, make(LOCAL))
    assert await signers(world) == {id_of(new)}


async def test_a_subject_speaks_for_its_origin_alone(world, make):
    """With access to the optimizer's subject alone, nobody can propose as the operator or PAPA."""
    world.publisher()
    for origin in (2, 3):
        posing = make(SPREAD, origin=origin)
        await world.propose(posing, "optimizer")
        statement = "SELECT outcome, reason FROM rulesets WHERE ruleset_id = %(id)s"
        ((outcome, reason),) = await world.rows(statement, 1, id=posing.id)
        assert outcome == "refused" and "proposed by spillway.proposals.optimizer" in reason


def test_it_does_not_start_without_a_key(world):
    """A missing or invalid key gives exit code 64 and the variable's name.

    The same holds for the operator's commands.
    """
    listen = {"SPILLWAY_HEALTH_LISTEN": "127.0.0.1:1"}
    signing_key = world.environment.pop("SPILLWAY_SIGNING_KEY")
    assert "SPILLWAY_SIGNING_KEY" not in os.environ
    done = world.command("run", **listen)
    assert (done.returncode, done.stderr) == (64, "SPILLWAY_SIGNING_KEY: is not set\n")
    (world.folder / "signing.key").write_text("rubbish")
    done = world.command("run", **listen, SPILLWAY_SIGNING_KEY=signing_key)
    assert done.returncode == 64
    assert done.stderr.startswith(f"SPILLWAY_SIGNING_KEY: {signing_key}: must be one Ed25519 private key")
    del world.environment["SPILLWAY_RULESET_KEYS"]
    done = world.command("status")
    assert (done.returncode, done.stderr) == (64, "SPILLWAY_RULESET_KEYS: is not set\n")
