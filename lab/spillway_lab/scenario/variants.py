"""The policies that scenarios compare, and how a live stack is brought under each of them.

A variant is a policy of the optimizer and the state of the processes around it. Some cannot be run
live; they are simulated, and a live run refuses them with the reason given here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, get_args

# The first four are those of the demo and of Istio. The rest is in the order of the papers.
Policy = Literal[
    "local",
    "failover",
    "waterfall",
    "spillway",
    "spillway-no-papa",
    "spillway-frozen-curves",
    "spillway-frozen-no-papa",
    "papa-only",
    "waterfall-worst-case",
    "waterfall-central",
    "round-robin",
    "l3",
    "l3-peak",
    "c3",
    "dealer",
    "static",
    "envoy-load-aware",
]


@dataclass(frozen=True)
class Variant:
    """How a policy is made live.

    `optimizer` is the policy that the optimizer follows, as `spillway_optimizer policy` sets it,
    also in simulations of Spillway and PAPA (`simulator.stepped`).
    Without `papa` the process `papa` is stopped. With `frozen_curves` the job `curves` fits no new
    curves, so that those of the profile stay. With `by_envoy` the pods' Envoys choose clusters by
    themselves and ignore the weights of the rulesets (`stack.balancing`). With `by_answers` the
    policy looks at how calls end, which simulations then count. `refused` says why the policy
    cannot be run live.
    """

    optimizer: str = ""
    papa: bool = True
    frozen_curves: bool = False
    by_envoy: bool = False
    by_answers: bool = False
    refused: str = ""


VARIANTS: Mapping[str, Variant] = MappingProxyType(
    {name: Variant(optimizer=name) for name in ("local", "failover", "waterfall", "spillway")}
    | {
        "spillway-no-papa": Variant(optimizer="spillway", papa=False),
        # SLATE's "without continuous profiling" (section 5.3, Fig. 9 and 10).
        "spillway-frozen-curves": Variant(optimizer="spillway", frozen_curves=True),
        "spillway-frozen-no-papa": Variant(optimizer="spillway", papa=False, frozen_curves=True),
        # SLATE's start for PAPA alone (section 5.3.3).
        "papa-only": Variant(
            optimizer="mostly-local",
            refused="it is simulated; no live run has shown yet that its start holds",
        ),
        # SLATE's own rule of section 5.1, beside the thresholds that `waterfall` has.
        "waterfall-worst-case": Variant(
            refused="its thresholds are learned, and a stack has those of the scenario"
        ),
        "waterfall-central": Variant(optimizer="waterfall-central"),
        "round-robin": Variant(optimizer="round-robin"),
        "l3": Variant(optimizer="l3", by_answers=True),
        "l3-peak": Variant(optimizer="l3-peak", by_answers=True),
        "c3": Variant(optimizer="c3", by_answers=True),
        "dealer": Variant(optimizer="dealer"),
        "static": Variant(optimizer="static"),
        "envoy-load-aware": Variant(optimizer="local", by_envoy=True),
    }
)
assert tuple(VARIANTS) == get_args(Policy)


def live(policies: list[Policy]) -> tuple[list[Policy], list[str]]:
    """Returns the policies that can be run live, and a problem for each of the others."""
    allowed = [name for name in policies if not VARIANTS[name].refused]
    every = ", ".join(name for name, variant in VARIANTS.items() if not variant.refused)
    problems = [
        f"policies: {name!r} cannot be run live: {VARIANTS[name].refused}; allowed: {every}"
        for name in policies
        if VARIANTS[name].refused
    ]
    return allowed, problems


def interleaved(policies: Sequence[str], repetitions: int) -> list[tuple[str, int]]:
    """Returns (policy, repetition) in the order of the rounds: A B C, C B A, A B C, ...

    What changes slowly during a run, such as the temperature of the machine or a cache of the
    disk, then falls on all policies alike.
    """
    rounds = []
    for repetition in range(repetitions):
        row = policies if repetition % 2 == 0 else list(reversed(policies))
        rounds += [(policy, repetition) for policy in row]
    return rounds
