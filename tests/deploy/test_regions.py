"""The life of the example of many regions, in order.

Every test continues where the previous one ended.
"""

import base64
import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from example import README, UPGRADING, Example, changes, commands
from kube_region import Region
from readiness import missing_references, pods, wait_ready, workloads

pytestmark = [pytest.mark.deploy, pytest.mark.timeout(1200)]

REGIONS = {"west", "east", "south"}
FILES = {
    'update module.cluster.kubernetes_config_map_v1.this["spillway-topology"]',
    'update module.cluster.kubernetes_config_map_v1.this["spillway-endpoints"]',
}
NORTH = {
    "region": "us-north",
    "entry": {"domain": "north.shop.example", "port": 8443},
    "namespaces": ["shop"],
    "links": {name: {"rtt_ms": 40, "egress_usd_per_gb": 0.03, "both_ways": True} for name in sorted(REGIONS)},
}


def clusters(text: str) -> set[str]:
    return {cluster["name"] for cluster in yaml.safe_load(text)["clusters"]}


def topology(example: Example, region: str) -> set[str]:
    """Returns the clusters that the region's topology file names."""
    return clusters(example.config_map(region, "spillway-topology", "topology.yaml"))


def test_one_apply_makes_every_region_ready(example: Example) -> None:
    """The test runs the commands under Start.

    Every workload of three regions and the global one runs, and every Secret and file that it names
    exists.
    """
    plan, apply = commands(README)[:2]
    assert example.shell(plan).returncode == 2
    done = example.shell(apply)
    assert done.returncode == 0, done.stdout + done.stderr
    ready = {name: wait_ready(region) for name, region in example.regions.items()}
    assert {"deployment/spillway-optimizer", "deployment/spillway-publisher"} <= ready["global"]
    for name in REGIONS:
        assert {"statefulset/spillway-relay", "statefulset/spillway-collector"} <= ready[name]
    assert [name for name in ready if "daemonset/spillway-agent" in ready[name]] == ["south"]
    for region in example.regions.values():
        assert missing_references(region) == []


def test_a_second_plan_is_empty(example: Example) -> None:
    """Applying again would change nothing."""
    done = example.run("plan")
    assert done.returncode == 0
    assert changes(done) == {name: set() for name in ("global", *REGIONS)}


def test_states_of_regions_hold_no_secret(example: Example) -> None:
    """A region's passwords and private keys are in its Secrets and in the state of global/.

    No region's state contains them.
    """
    for name, identity in example.outputs()["identities"].items():
        state = example.state(f"region-{name}")
        secret = example.object(name, "secret", "spillway-relay")
        assert secret["data"]
        assert "PRIVATE KEY" not in state
        for word in (identity["nats"]["password"], identity["kafka"]["password"]):
            assert word not in state and word in example.state("global")


def test_adding_a_region_changes_that_region_alone(
    example: Example, make_region: Callable[[str], Region]
) -> None:
    """For the other regions a fourth one changes two files, which their relays read again.

    None of their pods restarts.
    """
    before = {name: pods(example.regions[name]) for name in REGIONS}
    example.map["regions"]["north"] = dict(NORTH)
    for placements in example.map["services"].values():
        placements["north"] = {"threshold_rps": 100}
    example.place("north", make_region("north"))
    planned = changes(example.run("plan"))
    assert {name: planned[name] for name in REGIONS} == dict.fromkeys(REGIONS, FILES)
    example.apply()
    assert {name: pods(example.regions[name]) for name in REGIONS} == before
    wait_ready(example.regions["north"])
    assert missing_references(example.regions["north"]) == []
    for name in (*REGIONS, "global", "north"):
        assert topology(example, name) == REGIONS | {"north"}


def test_a_region_is_drained_before_it_is_removed(example: Example) -> None:
    """No command removes a region that gets traffic.

    A drained region first leaves the topology and is then removed.
    """
    north = example.regions["north"]
    refused = example.run("remove", "north")
    assert refused.returncode == 64 and "drained: true" in refused.stderr
    entry = example.map["regions"].pop("north")
    placed = {service: placements.pop("north") for service, placements in example.map["services"].items()}
    refused = example.run()
    assert refused.returncode == 64 and "still deployed" in refused.stderr
    example.map["regions"]["north"] = entry | {"drained": True}
    for service, placement in placed.items():
        example.map["services"][service]["north"] = placement
    example.apply()
    # The region is out of all topologies, while its workloads still run and know where to send what
    # arrives.
    for name in (*REGIONS, "global"):
        assert topology(example, name) == REGIONS
    assert topology(example, "north") == REGIONS | {"north"}
    assert all(workloads(north).values()) and workloads(north)
    done = example.run("remove", "north")
    assert done.returncode == 0
    assert "spillway" not in north.kubectl("get", "namespaces", "-o", "name")
    for placements in example.map["services"].values():
        del placements["north"]
    del example.map["regions"]["north"]
    example.apply()
    assert changes(example.run("plan")) == {name: set() for name in ("global", *REGIONS)}


def test_a_dead_region_holds_no_other_up(example: Example) -> None:
    """With one API server killed, a change reaches all other regions.

    The dead one is named and catches up later.
    """
    east = example.regions["east"]
    east.api_server.kill()
    example.map["services"]["backend"]["west"]["threshold_rps"] = 77
    done = example.run()
    assert done.returncode == 1
    failed = [line.split()[0] for line in done.stdout.splitlines() if "FAILED" in line]
    assert failed == ["east"]
    for name in ("west", "south", "global"):
        assert "77" in example.config_map(name, "spillway-topology", "topology.yaml")
    east.api_server.start()
    assert "77" not in example.config_map("east", "spillway-topology", "topology.yaml")
    for command, code in zip(commands(UPGRADING), (2, 0), strict=True):
        assert example.shell(command).returncode == code
    assert "77" in example.config_map("east", "spillway-topology", "topology.yaml")
    assert example.run("plan").returncode == 0


def test_the_signing_key_is_replaced_step_by_step(example: Example) -> None:
    """Relays trust the new key before the publisher signs with it.

    They trust the old key until nothing is signed with it.
    """

    def now() -> tuple[str, int]:
        keys = {
            example.config_map(name, "spillway-ruleset-keys", "keys.pem").count("BEGIN") for name in REGIONS
        }
        assert len(keys) == 1
        return example.object("global", "secret", "spillway-signing-key")["data"]["signing.key"], keys.pop()

    before = {name: pods(example.regions[name]) for name in REGIONS}
    first, trusted = now()
    assert trusted == 1
    example.map["global"]["signing_keys"] = {"trusted": ["1", "2"], "active": "1"}
    example.apply()
    assert now() == (first, 2)
    example.map["global"]["signing_keys"]["active"] = "2"
    example.apply()
    second, trusted = now()
    assert second != first and trusted == 2
    example.map["global"]["signing_keys"]["trusted"] = ["2"]
    example.apply()
    assert now() == (second, 1)
    assert {name: pods(example.regions[name]) for name in REGIONS} == before


def test_the_authority_of_one_cluster_is_replaced_step_by_step(example: Example) -> None:
    """Pods trust both authorities before the relay shows a certificate of the new one.

    No other cluster changes.
    """

    def now(region: str) -> tuple[str, list[str]]:
        """Returns the issuer of the relay's certificate, and the authorities its clients trust."""
        data = example.object(region, "secret", "spillway-relay-tls")["data"]
        shown, trusted = (
            x509.load_pem_x509_certificates(base64.b64decode(data[key])) for key in ("tls.crt", "ca.crt")
        )
        for authority in trusted:
            if authority.subject == shown[0].issuer:
                shown[0].verify_directly_issued_by(authority)
        return shown[0].issuer.rfc4514_string(), [
            certificate.subject.rfc4514_string() for certificate in trusted
        ]

    old = now("west")
    others = {name: now(name) for name in ("east", "south")}
    old_issuer, new_issuer = "CN=Spillway cluster/west 1", "CN=Spillway cluster/west 2"
    assert old == (old_issuer, [old_issuer])
    before = {name: pods(example.regions[name]) for name in REGIONS}
    example.map["regions"]["west"]["identity"] = {"authorities": {"trusted": ["1", "2"], "active": "1"}}
    example.apply()
    assert now("west") == (old_issuer, [old_issuer, new_issuer])
    example.map["regions"]["west"]["identity"]["authorities"]["active"] = "2"
    example.apply()
    assert now("west") == (new_issuer, [old_issuer, new_issuer])
    example.map["regions"]["west"]["identity"]["authorities"]["trusted"] = ["2"]
    example.apply()
    assert now("west") == (new_issuer, [new_issuer])
    assert {name: now(name) for name in ("east", "south")} == others
    assert {name: pods(example.regions[name]) for name in REGIONS} == before


def test_destroy_leaves_nothing(example: Example) -> None:
    """No namespace, no cluster-wide object and no entry in any state is left."""
    done = example.run("destroy")
    assert done.returncode == 0
    kinds = "clusterroles,clusterrolebindings,mutatingwebhookconfigurations,persistentvolumeclaims"
    for name, region in example.regions.items():
        assert "spillway" not in region.kubectl("get", "namespaces", "-o", "name")
        left = region.kubectl("get", kinds, "-A", "-l", "app.kubernetes.io/part-of=spillway", "-o", "name")
        assert left == "", name
    for name in ("global", *(f"region-{region}" for region in (*REGIONS, "north"))):
        assert yaml.safe_load(example.state(name))["resources"] == []


@pytest.mark.parametrize("program", ["terraform-1.8", "tofu-1.8"])
def test_the_oldest_programs_apply_it(example: Example, program: str, tmp_path: Path) -> None:
    """The oldest programs apply everything, then plan no changes, and destroy everything.

    These programs do not support write-only arguments.
    """
    map_ = copy.deepcopy(example.map) | {"secrets": {}}
    oldest = Example(tmp_path, map_, program=program)
    oldest.apply()
    for name in ("global", *REGIONS):
        wait_ready(example.regions[name])
    done = oldest.run("plan")
    assert (done.returncode, changes(done)) == (0, {name: set() for name in ("global", *REGIONS)})
    assert oldest.run("destroy").returncode == 0


def test_every_command_of_the_documents_has_been_run(example: Example) -> None:
    """The tests above ran each call of `apply` in terraform/README.md and UPGRADING.md."""
    shown = commands(README) + commands(UPGRADING)
    assert len(shown) == 6
    assert set(shown) <= example.ran


def test_existing_secrets_stay_out_of_every_state(example: Example) -> None:
    """A secret store makes the Secrets, so a plan of the global part makes no Secret.

    It makes no key and no password either.
    """
    example.map["secrets"] = {"existing": True}
    planned = changes(example.run("plan"))["global"]
    assert "create module.global.helm_release.this" in planned
    assert [line for line in planned if "secret" in line or "tls_" in line or "password" in line] == []
