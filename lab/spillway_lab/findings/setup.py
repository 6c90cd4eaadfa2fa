"""What a scenario sets up, as blocks: clusters, network, load, events. Pure."""

from collections.abc import Iterator

from spillway_lab.findings.blocks import Block, Table, Text
from spillway_lab.scenario.events import Event
from spillway_lab.scenario.loads import Phase
from spillway_lab.scenario.scenario import Scenario


def blocks(scenario: Scenario) -> Iterator[Block]:
    yield _network(scenario)
    yield _load(scenario)
    if scenario.document.events:
        happened = "; ".join(
            f"at {event.at_seconds:g} s {described(event)}" for event in scenario.document.events
        )
        yield Text(f"Events: {happened}.")


def described(event: Event) -> str:
    """Returns an event in a few words."""
    if event.link is not None:
        link = event.link
        change = f"is {link.rtt_ms:g} ms" if link.rtt_ms is not None else f"has {link.add_rtt_ms:g} ms more"
        ends = [link.source_cluster or "any", link.destination_cluster or "any"]
        return f"the round trip {' to '.join(ends)}{' and back' if link.both_ways else ''} {change}"
    if event.service is not None:
        state = ", ".join(f"{key} {value}" for key, value in event.service.state().items())
        return f"{event.service.service} in {event.service.cluster} has {state}"
    if event.cluster is not None:
        return f"{event.cluster.cluster} is {'reachable again' if event.cluster.reachable else 'cut off'}"
    assert event.replicas is not None, "an event has exactly one kind"
    return f"{event.replicas.service} in {event.replicas.cluster} has {event.replicas.pods} pods"


def _network(scenario: Scenario) -> Block:
    """Returns the matrix of round trips; a pair without a link has a dash."""
    clusters = scenario.clusters
    rtt = {(link.source_cluster, link.destination_cluster): link.rtt_ms for link in scenario.links()}
    rows = tuple(
        (source, *("" if source == other else _known(rtt.get((source, other))) for other in clusters))
        for source in clusters
    )
    return Table(("round trip, ms", *clusters), rows)


def _load(scenario: Scenario) -> Block:
    measure, document = scenario.document.load.measure, scenario.document
    prices = sorted({link.egress_usd_per_gb for link in scenario.links()})
    price = f"{' or '.join(f'{each:g}' for each in prices)} USD per GB" if prices else "nothing"
    kinds = ", ".join(f"`{each.class_id}`" for each in document.requests)
    phases = "; then ".join(_phase(phase) for phase in measure.plan)
    return Text(
        f"Load: {phases}, after {measure.warm_up_seconds:g} s that are not measured. Requests: {kinds}. "
        f"Egress costs {price}."
    )


def _phase(phase: Phase) -> str:
    text = f"{phase.seconds:g} s of {_rates(phase.rps)} requests/s"
    if phase.to_rps is not None:
        text += f", changing to {_rates(phase.to_rps)}"
    if phase.burst is not None:
        burst = phase.burst
        text += f", every {burst.every_seconds:g} s for {burst.seconds:g} s {burst.factor:g} times as much"
    return text


def _rates(rps: dict[str, float]) -> str:
    return ", ".join(f"{cluster} {rate:g}" for cluster, rate in rps.items())


def _known(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"
