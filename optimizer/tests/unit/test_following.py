"""The policies that minimise the objective, as the leader and PAPA treat them."""

import logging
import subprocess
import sys
from types import SimpleNamespace

import pytest
from spillway.v1.ruleset_pb2 import Origin, Ruleset
from spillway_optimizer.inputs.in_force import InForce
from spillway_optimizer.papa.mesh import Interrupted
from spillway_optimizer.papa.watch import Watch
from spillway_optimizer.policies import ADJUSTED, EXACT, MINIMISING, MOSTLY_LOCAL, REGISTRY, SPILLWAY
from spillway_optimizer.process.states import States
from spillway_optimizer.service.following import Following
from spillway_optimizer.solvers.convex import Stop
from spillway_optimizer.solving.config import PapaTuning
from test_solving import TOPOLOGY

_STOP = Stop(relative_gap=1e-3, seconds=4.0)


@pytest.mark.parametrize("name", sorted(MINIMISING))
def test_a_policy_that_refines_gets_its_applications_part_of_the_time(name):
    """A quarter of 4 s is 1 s, and the requested gap is handed over too.

    The application keeps its policy object, and its part may change.
    """
    following = Following(None, name, _STOP, States(logging.getLogger("test")))
    router = following.router("shop", 0.25)
    assert (router.stop.seconds, router.stop.relative_gap) == (1.0, 1e-3)
    assert following.router("shop", 0.5) is router and router.stop.seconds == 2.0


def test_a_baseline_has_no_limit():
    """The leader hands over no stop where a policy would ignore it."""
    following = Following(None, "waterfall", _STOP, States(logging.getLogger("test")))
    assert not hasattr(following.router("shop", 0.25), "stop")


def test_of_all_policies_exact_alone_imports_or_tools_at_once():
    """A leader that follows any other policy does not pay for its import when it starts.

    The policy `spillway` imports it when a limit on destinations costs more than its gap.
    """
    code = (
        "import sys, spillway_optimizer.__main__, spillway_optimizer.service.loop\n"
        "from spillway_optimizer.policies import EXACT, REGISTRY\n"
        "[make() for name, make in REGISTRY.items() if name != EXACT]\n"
        "before = 'ortools' in sys.modules; REGISTRY[EXACT](); print(before, 'ortools' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["False", "True"], done.stderr


async def test_papa_adjusts_only_rules_of_policies_that_minimise_and_its_own_start():
    """The rules of every other policy are left as they are."""
    adjusted = set()
    for name in REGISTRY:
        ruleset = Ruleset(policy=name)
        rulesets = {cluster.name: ruleset for cluster in TOPOLOGY.clusters}
        found = InForce({}, Origin.ORIGIN_OPTIMIZER, name, dict.fromkeys(rulesets, 1), "r", rulesets)

        async def in_force(found=found):
            return found

        try:
            mesh = SimpleNamespace(in_force=in_force)
            assert await Watch(PapaTuning(), TOPOLOGY, mesh, None, None).complete({}) is found
            adjusted.add(name)
        except Interrupted as error:
            assert repr(name) in str(error)
    assert adjusted == ADJUSTED == MINIMISING | {MOSTLY_LOCAL} == {SPILLWAY, EXACT, "mostly-local"}
