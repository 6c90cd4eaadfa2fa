"""The policy that is followed, with the policy objects that route by it."""

from collections.abc import Collection
from dataclasses import replace

from spillway_optimizer.discrete.limited import Limited
from spillway_optimizer.policies import REGISTRY
from spillway_optimizer.problem.solution import Policy
from spillway_optimizer.solvers.convex import Stop
from spillway_optimizer.solvers.hint import Hint


class Routers:
    """The policy being followed, `name`, and one policy object per application.

    An object lives as long as its policy is followed, because some policies have memory.
    """

    def __init__(self, name: str, stop: Stop):
        self._stop = stop
        self._routers: dict[str, Policy] = {}  # by application
        self._hints: dict[str, Hint] = {}  # by application, for its next solve
        self.name = name
        self._fallen: tuple[str, frozenset[str]] = "", frozenset()

    def fall_back(self, policy: str, applications: Collection[str]) -> None:
        """Makes these applications follow another policy, and all others that of `name` again."""
        before = self._fallen[1]
        self._fallen = policy, frozenset(applications)
        for application in before ^ self._fallen[1]:
            self._routers.pop(application, None)

    def follow(self, name: str) -> None:
        """Follows another policy of the REGISTRY, with new policy objects."""
        if name != self.name:
            self.name, self._routers, self._hints = name, {}, {}

    def router(self, application: str, share: float = 1.0) -> Policy:
        """Returns the application's policy object.

        `share`: the application's share of the time for all solves.
        """
        router = self._routers.get(application)
        if router is None:
            policy, fallen = self._fallen
            name = policy if application in fallen else self.name
            router = self._routers[application] = REGISTRY[name]()
        if isinstance(router, Limited):
            router.stop = replace(self._stop, seconds=self._stop.seconds * share)
            router.hint = self._hints.pop(application, router.hint)
        return router

    def keep(self, application: str, router: Policy) -> None:
        """Replaces the application's policy object by one that has solved in another process.

        Does nothing if the application has none, because the policy has changed meanwhile.
        """
        if application in self._routers:
            self._routers[application] = router

    def suggest(self, application: str, hint: Hint) -> None:
        """Gives a routing to the application's next solve, as one more start."""
        self._hints[application] = hint

    def forget_all_but(self, applications: Collection[str]) -> None:
        """Drops the policy objects of all other applications."""
        self._routers = {name: router for name, router in self._routers.items() if name in applications}
        self._hints = {name: hint for name, hint in self._hints.items() if name in applications}
