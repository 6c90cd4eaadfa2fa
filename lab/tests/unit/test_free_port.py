"""Ports of servers that tests start."""

import pytest
from spillway_lab.testing import servers


def test_tests_that_run_side_by_side_are_given_no_port_twice(monkeypatch: pytest.MonkeyPatch):
    """A server listens only a while after its port was chosen, and another process cannot see it until then."""
    given = {}
    for worker in ("gw0", "gw1", "gw2"):
        monkeypatch.setenv("PYTEST_XDIST_WORKER", worker)
        monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", "3")
        monkeypatch.setattr(servers, "_given", set())  # another process knows nothing of it
        given[worker] = {servers.free_port() for _ in range(200)}
    assert all(len(ports) == 200 for ports in given.values())
    assert len(set().union(*given.values())) == 600
