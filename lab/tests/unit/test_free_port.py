"""Ports of servers that tests start."""

import pytest
from spillway_lab.testing import servers


def test_tests_that_run_side_by_side_are_given_no_port_twice(monkeypatch: pytest.MonkeyPatch):
    """Test processes that run in parallel get distinct ports.

    A server listens only some time after its port was chosen. Until then no other process can see
    that the port is taken.
    """
    given = {}
    for worker in ("gw0", "gw1", "gw2"):
        monkeypatch.setenv("PYTEST_XDIST_WORKER", worker)
        monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", "3")
        # another process does not know the ports of this one
        monkeypatch.setattr(servers, "_given", set())
        given[worker] = {servers.free_port() for _ in range(200)}
    assert all(len(ports) == 200 for ports in given.values())
    assert len(set().union(*given.values())) == 600
