"""Between rounds no weights that nobody wants are in force, whoever balances."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from spillway_lab.stack import balancing
from spillway_lab.stack.switching import Switching


class Recorded:
    """A stack's supervisor and control, of which only the order of changes is kept."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: list[str] = []
        monkeypatch.setattr(balancing, "callers", lambda *_: [])
        monkeypatch.setattr(balancing, "to_envoys", lambda *_: self.done.append("envoys"))
        monkeypatch.setattr(balancing, "to_relays", lambda *_: self.done.append("relays"))
        running = SimpleNamespace(run=Path(), scenario=None, plan=SimpleNamespace(pods=[]), supervisor=None)
        self.switching = Switching(cast(Any, running), cast(Any, self))

    def set_policy(self, policy: str) -> None:
        self.done.append(policy)

    def wait_policy(self, policy: str, *_: object) -> None:
        self.done.append(f"{policy} in force")

    def bring(self, policy: str) -> list[str]:
        """Returns what is done to bring the policy into force."""
        self.done.clear()
        self.switching.bring(policy, lambda _: None)
        return list(self.done)


def test_envoys_take_over_first_and_give_back_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """The relays' weights are in force only while they are those of a policy that is measured."""
    stack = Recorded(monkeypatch)
    assert stack.bring("waterfall") == ["waterfall", "waterfall in force", "relays"]
    assert stack.bring("envoy-load-aware") == ["envoys", "local", "local in force"]
    assert stack.bring("waterfall") == ["waterfall", "waterfall in force", "relays"]
