"""Open-loop load at every cluster's entry, sent by vegeta, one process per cluster.

Open loop means that each request is sent at its planned time, whatever happened to earlier ones. A
slow system therefore gets no less load (no coordinated omission). A request that could not be sent
counts as an error; it is not left out.
"""

import math
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from spillway_lab.load import samples as sampling
from spillway_lab.load.samples import Samples
from spillway_lab.scenario.errors import LoadError
from spillway_lab.scenario.loads import CLIENT_TIMEOUT_S

_MARGIN_S = 10.0  # time for vegeta itself to start and to write its results
_REPORT_EVERY_S = 1.0


@dataclass(frozen=True)
class Attack:
    """Load at one cluster: a constant rate for a given time."""

    cluster: str
    targets: list[str]  # JSON lines from targets.targets
    rps: float
    seconds: float


@dataclass(frozen=True)
class Progress:
    """Progress of a running load; passed to the caller about once a second."""

    elapsed_s: float
    total_s: float


@dataclass(frozen=True)
class Generator:
    """How to run vegeta."""

    folder: Path  # where targets and results are kept
    vegeta: str = "vegeta"
    timeout_s: float = CLIENT_TIMEOUT_S  # timeout of one request at the client
    # least share of the requests asked for; vegeta drops the last ones when it runs out of time
    sent_at_least: float = 0.98


def run(
    attacks: list[Attack],
    generator: Generator,
    name: str,
    warm_up_s: float = 0.0,
    on_progress: Callable[[Progress], None] = lambda _: None,
    is_enough: Callable[[], bool] = lambda: False,
) -> dict[str, Samples]:
    """Runs all attacks at once and returns what each cluster's client saw after the warm-up.

    Takes as long as the longest attack, plus at most the request timeout and a few seconds. Sends
    no more once `is_enough` returns True. Leaves out clusters with rate 0. Raises LoadError when
    vegeta fails, hangs, or sends less than asked. An exception from on_progress stops the load and
    is passed on.
    """
    generator.folder.mkdir(parents=True, exist_ok=True)
    attacks = [attack for attack in attacks if attack.rps > 0]
    if empty := [attack.cluster for attack in attacks if not attack.targets]:
        raise LoadError(f"no targets for {', '.join(empty)}: the entry service has no pod there")
    if not attacks:
        return {}
    with _processes(attacks, generator, name) as processes:
        total = max(attack.seconds for attack in attacks)
        sent_s = _wait(processes, total, generator.timeout_s + _MARGIN_S, on_progress, is_enough)
    found = {}
    for attack in attacks:
        with _decoded(generator, _file(generator, name, attack, "bin")) as lines:
            samples = sampling.parse(lines, attack.cluster)
        _check_sent(attack, samples, generator.sent_at_least, min(attack.seconds, sent_s))
        found[attack.cluster] = sampling.without_warm_up(samples, warm_up_s)
    return found


def command(attack: Attack, generator: Generator, targets: Path, results: Path) -> list[str]:
    """Returns vegeta's command line. Response bodies are read but not kept."""
    # There are enough workers for every request to run into its timeout. Fewer workers would limit
    # the rate, and the load would no longer be open loop.
    workers = math.ceil(attack.rps * generator.timeout_s * 1.2) + 10
    return [
        generator.vegeta,
        "attack",
        "-format=json",
        f"-targets={targets}",
        f"-output={results}",
        f"-name={attack.cluster}",
        f"-rate={_rate(attack.rps)}",
        f"-duration={attack.seconds}s",
        f"-timeout={generator.timeout_s}s",
        f"-max-workers={workers}",
        "-max-body=0",
        "-redirects=-1",
    ]


def _rate(rps: float) -> str:
    """Formats a rate for vegeta, which accepts only whole requests per time unit."""
    return f"{round(rps)}/1s" if float(rps).is_integer() else f"{round(rps * 60)}/1m"


def _file(generator: Generator, name: str, attack: Attack, kind: str) -> Path:
    return generator.folder / f"{name}-{attack.cluster}.{kind}"


@contextmanager
def _processes(
    attacks: list[Attack], generator: Generator, name: str
) -> Iterator[Mapping[str, subprocess.Popen[bytes]]]:
    """Starts one vegeta per attack. Kills those that still run when the block ends."""
    processes: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for attack in attacks:
            targets = _file(generator, name, attack, "targets")
            targets.write_text("\n".join(attack.targets) + "\n")
            arguments = command(attack, generator, targets, _file(generator, name, attack, "bin"))
            processes[attack.cluster] = _start(arguments, stderr=subprocess.PIPE)
        yield processes
    finally:
        for process in processes.values():
            if process.poll() is None:
                process.kill()
            process.communicate()


def _wait(
    processes: Mapping[str, subprocess.Popen[bytes]],
    total: float,
    more_s: float,
    on_progress: Callable[[Progress], None],
    is_enough: Callable[[], bool],
) -> float:
    """Waits until all have ended, at most `more_s` after the last request.

    Returns the seconds that they sent for, infinite if they were not told to end.
    """
    started = reported = time.monotonic()
    sent_s = math.inf
    while running := [cluster for cluster, process in processes.items() if process.poll() is None]:
        elapsed = time.monotonic() - started
        if elapsed > min(total, sent_s) + more_s:
            raise LoadError(f"vegeta for {', '.join(running)} still runs after {elapsed:.0f} s")
        if sent_s == math.inf and is_enough():
            sent_s = elapsed
            for cluster in running:
                processes[cluster].send_signal(signal.SIGINT)  # it waits for answers still
        if started + elapsed - reported >= _REPORT_EVERY_S:
            reported = started + elapsed
            on_progress(Progress(min(elapsed, total), total))
        time.sleep(0.05)
    for cluster, process in processes.items():
        if process.returncode != 0:
            raise LoadError(f"vegeta for {cluster} ended with {process.returncode}: {_tail(process)}")
    on_progress(Progress(min(total, sent_s), total))
    return sent_s


@contextmanager
def _decoded(generator: Generator, results: Path) -> Iterator[Iterator[bytes]]:
    """Yields the JSON lines of a result file, as decoded by vegeta."""
    process = _start(
        [generator.vegeta, "encode", "--to=json", str(results)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None  # it was started with a pipe
        yield process.stdout
        if process.wait(timeout=_MARGIN_S) != 0:
            raise LoadError(f"vegeta encode {results}: {_tail(process)}")
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def _check_sent(attack: Attack, samples: Samples, at_least: float, seconds: float) -> None:
    """Raises LoadError when too few requests were sent: results under less load look too good."""
    asked = attack.rps * seconds
    if len(samples) < at_least * asked - 1:
        raise LoadError(
            f"vegeta for {attack.cluster} sent {len(samples)} of {asked:.0f} requests; "
            f"at least {at_least:.0%} is needed: the machine is too busy, or the rate too high for it"
        )


def _start(
    arguments: list[str], stdout: int | None = None, stderr: int | None = None
) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr)
    except OSError as error:
        raise LoadError(f"{arguments[0]}: cannot be started: {error}") from error


def _tail(process: subprocess.Popen[bytes]) -> str:
    return (process.stderr.read() if process.stderr else b"").decode(errors="replace").strip()[-500:]
