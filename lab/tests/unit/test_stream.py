"""Load that goes on: kinds of requests, the generator's command line, and too few requests."""

from pathlib import Path

import numpy as np
import pytest
from spillway_lab.load import stream
from spillway_lab.load.kinds import kinds, pattern
from spillway_lab.load.samples import Samples, between, parse
from spillway_lab.render import pods
from spillway_lab.scenario import scenario
from spillway_lab.scenario.errors import LoadError

SHIPPED = Path(__file__).resolve().parents[2] / "scenarios/two-clusters.yaml"


def test_a_request_is_recognised_by_port_method_and_path() -> None:
    """The port tells the service. Anything else is an error that names the URL."""
    loaded = scenario.load(SHIPPED)
    layout = pods.plan(loaded, 20_000)
    kind = kinds(loaded, layout)
    [port] = layout.entry_ports("gateway", "west")
    assert kind("GET", f"http://127.0.0.1:{port}/items/7") == 0
    for method, url in (("POST", f"http://127.0.0.1:{port}/items/7"), ("GET", "http://127.0.0.1:1/items/7")):
        with pytest.raises(LoadError, match="none of the scenario's requests"):
            kind(method, url)


def test_a_variable_is_one_segment() -> None:
    """What stands between braces matches one part of a path, and everything else itself."""
    assert pattern("/a.b/{id}/c") == r"/a\.b/[^/]+/c"


def test_enough_workers_for_every_request_to_time_out() -> None:
    """Workers never limit the rate, and two clusters never get the same times."""
    options = stream.Options(folder=SHIPPED.parent, timeout_s=10)
    found = [stream.command("west", 100, i, options) for i in range(2)]
    assert "-max-workers=1210" in found[0]
    assert found[0][-1] != found[1][-1]


def some(count: int) -> Samples:
    zeros = np.zeros(count)
    return Samples(zeros + np.arange(count), zeros, zeros + 200, zeros, zeros.astype(str), zeros.astype(int))


def test_chance_explains_few_missing_requests_and_not_many() -> None:
    """What a Poisson process may lack is accepted. A generator that does not keep up is not."""
    stream.check_sent(some(940), 1000, "west")
    with pytest.raises(LoadError, match="west: 700 of about 1000 requests were sent"):
        stream.check_sent(some(700), 1000, "west")
    stream.check_sent(some(0), 0, "west")


def test_a_round_is_cut_out_by_the_time_of_sending() -> None:
    """A request belongs to the round in which it was sent, and to no other."""
    found = [between(some(10), begin, begin + 2).at_s.tolist() for begin in (0, 2, 4)]
    assert found == [[0, 1], [2, 3], [4, 5]]
    assert len(between(parse([], "west"), 0, 1)) == 0
