"""What a scenario sets up, as blocks: clusters, network, load, events. Pure."""

from collections.abc import Iterator, Sequence

from spillway_lab.pages.blocks import Block, Table, Text
from spillway_lab.scenario import flows
from spillway_lab.scenario.events import Event
from spillway_lab.scenario.loads import Phase
from spillway_lab.scenario.scenario import Scenario

_EVENTS = 12  # of more, a page says how many there are
_SHOWN = 3  # services, those with the least room first


def blocks(scenario: Scenario, measured_seconds: float | None = None) -> Iterator[Block]:
    """Yields the set-up. A simulated constant load lasts for `measured_seconds`, not the file's."""
    yield _network(scenario)
    yield _load(scenario, measured_seconds)
    yield from _room(scenario)
    if (count := len(scenario.document.events)) > _EVENTS:
        yield Text(f"Events: {count} changes, which are in the scenario's file.")
    elif count:
        happened = "; ".join(f"at {at:g} s {what}" for at, what in events(scenario).items())
        yield Text(f"Events: {happened}.")


def events(scenario: Scenario) -> dict[float, str]:
    """Returns what happens, by second; nothing if there are too many events to tell apart."""
    found: dict[float, list[str]] = {}
    for event in scenario.document.events[: _EVENTS + 1]:
        found.setdefault(event.at_seconds, []).append(described(event))
    few = len(scenario.document.events) <= _EVENTS
    return {at: ", ".join(what) for at, what in found.items()} if few else {}


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


def _load(scenario: Scenario, measured_seconds: float | None) -> Block:
    measure, document = scenario.document.load.measure, scenario.document
    plan = measure.plan
    if measured_seconds is not None and len(plan) == 1:
        plan = [plan[0].model_copy(update={"seconds": measured_seconds})]
    prices = sorted({link.egress_usd_per_gb for link in scenario.links()})
    price = f"{' or '.join(f'{each:g}' for each in prices)} USD per GB" if prices else "nothing"
    kinds = ", ".join(f"`{each.class_id}`" for each in document.requests)
    phases = _range(plan) if len(plan) > _EVENTS else "; then ".join(_phase(phase) for phase in plan)
    warm_up = f", after {measure.warm_up_seconds:g} s that are not measured" if plan == measure.plan else ""
    return Text(f"Load: {phases}{warm_up}. Requests: {kinds}. Egress costs {price}.")


def _range(plan: Sequence[Phase]) -> str:
    """Returns the least and the highest rate of each cluster over many phases."""
    seconds = sum(phase.seconds for phase in plan)
    found: dict[str, list[float]] = {}
    for phase in plan:
        for cluster, rps in phase.rps.items():
            found.setdefault(cluster, []).append(rps)
    rates = ", ".join(f"{cluster} {min(rps):g} to {max(rps):g}" for cluster, rps in found.items())
    return f"{seconds:g} s of {rates} requests/s, in {len(plan)} phases that are in the scenario's file"


def _room(scenario: Scenario) -> Iterator[Block]:
    """Yields how busy the busiest services would be without routing, and Waterfall's thresholds."""
    application, clusters = scenario.application, scenario.clusters
    offered = {name: [_offered(scenario, name, c) for c in clusters] for name in application.services}
    busiest = sorted(offered, key=lambda name: -max((x for x in offered[name] if x is not None), default=0.0))
    rows = []
    for name in busiest[:_SHOWN]:
        placed = scenario.document.placement[name]
        marks = ["missing" if x is None else f"{x:.0%}" for x in offered[name]]
        thresholds = [f"{scenario.threshold_rps(name, c):.0f}/s" if c in placed else "-" for c in clusters]
        rows.append((name, *(f"{m}, {t}" for m, t in zip(marks, thresholds, strict=True))))
    yield Text(
        "The busiest services, if every request stayed in its cluster: the highest load over the capacity, and "
        "Waterfall's threshold in requests of that service."
    )
    yield Table(("service", *clusters), tuple(rows))


def _offered(scenario: Scenario, service: str, cluster: str) -> float | None:
    """Returns the highest utilisation by a cluster's own users; None where it is missing."""
    placed = scenario.document.placement[service].get(cluster)
    if placed is None:
        return None
    application, requests = scenario.application_of(cluster), scenario.document.requests
    shares = [request.share_in(cluster) for request in requests]
    by_class = flows.rates(application, requests, shares)
    calls = sum(rate for class_id, rate in by_class.items() if class_id.split()[0] == service)
    work = flows.work(application, service, by_class)
    if work is None:
        return 0.0
    plan = scenario.document.load.measure.plan
    rps = max(max(phase.rate(cluster, at) for at in (0.0, phase.seconds)) for phase in plan)
    workers = placed.pods * application.services[service].workers
    return rps * calls * work.mean_ms / 1000 / workers


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
