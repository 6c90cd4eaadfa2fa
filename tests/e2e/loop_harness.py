"""What end-to-end tests do with a running stack: send load and wait for the loop to close."""

import ssl
import time
from dataclasses import dataclass

from clickhouse_driver import Client
from spillway_lab.experiments import profiling
from spillway_lab.keys import keystore
from spillway_lab.load import background, load
from spillway_lab.stack.control import Control, InForce, describe
from spillway_lab.stack.stack import LabStack

# This is a guard, not a claim: killed servers come back first, and the loop then needs some rounds.
CLOSES_WITHIN_S = 120.0
# Load that nobody ends, because its test was killed, ends by itself.
LONGEST_S = 3600.0
# Toxiproxy's name of the proxy between one Envoy and its collector.
EXPORTS = "exports"
_CLUSTERS_WITH_CALLS = (
    "SELECT DISTINCT cluster FROM calls WHERE started_at > fromUnixTimestamp64Micro(toInt64(%(instant)s))"
)
_MODEL = """
    SELECT class, '', 'a', round(a_ms, 2), 'b', round(b_ms, 2), 'of', fitted_at FROM curves
    ORDER BY fitted_at DESC LIMIT 1 BY class
    UNION ALL
    SELECT service, cluster, 'capacity', round(capacity_rps, 1), source, 0, 'of', measured_at FROM capacities
    ORDER BY measured_at DESC LIMIT 1 BY service, cluster
"""


@dataclass
class Loop:
    """The running stack and the operations of tests on it."""

    stack: LabStack
    control: Control

    def clickhouse(self) -> Client:
        return Client.from_url(self.stack.clickhouse_url())

    def sender(self, cluster: str, shows: str | None = "") -> ssl.SSLContext:
        """Returns a TLS context for a cluster's collector.

        It shows the certificate of that cluster's own sender, that of the cluster `shows`, or none
        (None).
        """
        context = ssl.create_default_context(cafile=str(self.stack.sender(cluster) / keystore.TRUST))
        if shows is not None:
            held = self.stack.sender(shows or cluster)
            context.load_cert_chain(held / keystore.CERTIFICATE, held / keystore.KEY)
        return context

    def believed(self) -> str:
        """Returns the rules in force with their reasons, and the model from which they follow."""
        current = self.control.in_force()
        rules = describe(current) if current else "no rules of one version"
        found = self.clickhouse().execute(_MODEL)
        model = "\n".join(" ".join(map(str, row)) for row in found)
        return f"\n{self.control.line()}\n{rules}\n{model}"

    def closed_since(self, instant: float, timeout: float = CLOSES_WITHIN_S) -> InForce:
        """Waits until telemetry after `instant` has reached every Envoy as a ruleset.

        Calls of every cluster that began after the instant must be stored, and a ruleset that was
        computed from later telemetry must be in every Envoy. Raises AssertionError after `timeout`
        seconds.
        """
        deadline, seen = time.monotonic() + timeout, "nothing"
        client, clusters = self.clickhouse(), set(self.stack.scenario.clusters)
        while time.monotonic() < deadline:
            time.sleep(0.5)
            try:
                current = self.control.in_force()
                if current is None:
                    continue
                end = min(r.input_window.end.ToMicroseconds() / 1e6 for r in current.rulesets.values())
                reached = min(self.control.versions_at_envoys())
                seen = (
                    f"version {current.version}, telemetry until {end - instant:+.1f} s, Envoys at {reached}"
                )
                with_calls = {
                    row[0] for row in client.execute(_CLUSTERS_WITH_CALLS, {"instant": int(instant * 1e6)})
                }
                seen += f", calls of {sorted(with_calls)}"
                if end > instant and reached >= current.version and with_calls == clusters:
                    return current
            except Exception as error:
                seen = f"{type(error).__name__}: {error}"
        raise AssertionError(f"the loop did not close within {timeout:.0f} s; last seen: {seen}")


class Background(background.Background):
    """Load at both clusters, `times` the scenario's rate, while a test does something else.

    With `endless` it lasts as long as its `with` block. Otherwise it ends by itself after a test
    that failed.
    """

    def __init__(
        self, running: LabStack, name: str, seconds: float, times: float = 1, endless: bool = False
    ) -> None:
        """Starts the load."""
        rates = running.scenario.document.load.measure.first_rps
        attacks = profiling.attacks(
            running, {cluster: times * rate for cluster, rate in rates.items()}, seconds
        )
        # Failed requests matter here, not how many requests a busy machine can send.
        generator = load.Generator(running.run / "load", sent_at_least=0.8)
        self._clock_s = time.time() - time.monotonic()
        super().__init__(attacks, generator, name, LONGEST_S if endless else seconds + 2 * CLOSES_WITHIN_S)

    def failures(self) -> list[tuple[float, str, str]]:
        """Returns (`time.monotonic` of sending, cluster, reason) of the failed requests.

        Waits until all load was sent. vegeta reads the clock once, when it starts, and counts from
        there. So its Unix times do not follow a clock that is set meanwhile.
        """
        return [
            (float(part.at_s[i]) - self._clock_s, cluster, str(part.reason[i]))
            for cluster, part in self.parts().items()
            for i in (~part.ok).nonzero()[0]
        ]
