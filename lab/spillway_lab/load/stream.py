"""Load that goes on between measurements: a generator per cluster, whose rates can change.

lab/generator sends the requests, open loop and as a Poisson process. A run has one stream. Rounds
are cut out of it by time, so the load does not stop while policies change.
"""

import json
import math
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from spillway_lab.load import samples as sampling
from spillway_lab.load.samples import Samples
from spillway_lab.scenario.errors import LoadError
from spillway_lab.scenario.loads import CLIENT_TIMEOUT_S, Segment

_MARGIN_S = 10.0  # for the generator to start, and to write its results
_HOLD_S = 1.0  # length of a segment of constant rate; the last rate continues


@dataclass(frozen=True)
class Options:
    """How to run the generators."""

    folder: Path  # where targets and results are kept
    program: str = "spillway-load"
    timeout_s: float = CLIENT_TIMEOUT_S  # of one request at the client
    seed: int = 1


class Stream:
    """Running generators, by cluster."""

    def __init__(self, processes: Mapping[str, subprocess.Popen[bytes]], options: Options) -> None:
        self._processes, self._options = processes, options

    def follow(self, segments: Mapping[str, list[Segment]]) -> float:
        """Starts a schedule in every cluster now, and returns the Unix time of its start.

        A cluster that is left out gets no load. Raises LoadError when a generator has ended.
        """
        began = time.time()
        for cluster in self._processes:
            pieces = segments.get(cluster) or [Segment(_HOLD_S, 0.0, 0.0)]
            line = json.dumps({"segments": [asdict(piece) for piece in pieces]})
            try:
                _pipe(self._processes[cluster].stdin).write(line.encode() + b"\n")
                _pipe(self._processes[cluster].stdin).flush()
            except OSError as error:
                raise self._ended(cluster) from error
        return began

    def steady(self, rps: Mapping[str, float]) -> float:
        """Sends constant rates until further notice."""
        return self.follow({cluster: [Segment(_HOLD_S, rate, rate)] for cluster, rate in rps.items()})

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes.values()]

    def await_ready(self, cluster: str) -> None:
        """Waits until a generator has read its targets. Raises LoadError when it ended instead.

        A generator that fails closes its output before its process has ended. The end of the output
        decides, since `check` may still see a running process at that time.
        """
        if not _pipe(self._processes[cluster].stdout).readline():
            with suppress(subprocess.TimeoutExpired):  # it is killed when the stream ends
                self._processes[cluster].wait(_MARGIN_S)
            raise self._ended(cluster)

    def check(self) -> None:
        """Raises LoadError when a generator has ended."""
        for cluster, process in self._processes.items():
            if process.poll() is not None:
                raise self._ended(cluster)

    def end(self, kind: Callable[[str, str], int]) -> dict[str, Samples]:
        """Ends the load, and returns all requests by cluster, after the last one was answered.

        `kind` is as in samples.parse. Raises LoadError when a generator fails or hangs.
        """
        found = {}
        for process in self._processes.values():
            _pipe(process.stdin).close()
        for cluster, process in self._processes.items():
            try:
                process.wait(self._options.timeout_s + _MARGIN_S)
            except subprocess.TimeoutExpired:
                raise LoadError(f"the generator of {cluster} did not end") from None
            if process.returncode != 0:
                raise LoadError(f"the generator of {cluster}: {self._tail(cluster)}")
            with _file(self._options, cluster, "json").open("rb") as lines:
                found[cluster] = sampling.parse(lines, cluster, kind)
        return found

    def _ended(self, cluster: str) -> LoadError:
        return LoadError(f"the generator of {cluster} has ended: {self._tail(cluster)}")

    def _tail(self, cluster: str) -> str:
        return _file(self._options, cluster, "err").read_text(errors="replace").strip()[-500:]


@contextmanager
def stream(
    targets: Mapping[str, list[str]], most_rps: Mapping[str, float], options: Options
) -> Iterator[Stream]:
    """Starts a generator per cluster, without load. Kills those that still run at the end.

    `targets` are vegeta's JSON lines by cluster, and `most_rps` the highest rate there. Raises
    LoadError when a generator does not start.
    """
    options.folder.mkdir(parents=True, exist_ok=True)
    processes: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for i, (cluster, lines) in enumerate(targets.items()):
            _file(options, cluster, "targets").write_text("\n".join(lines) + "\n")
            arguments = command(cluster, most_rps.get(cluster, 0.0), i, options)
            with _file(options, cluster, "err").open("wb") as errors:
                processes[cluster] = _started(arguments, errors)
        running = Stream(processes, options)
        for cluster in processes:
            running.await_ready(cluster)
        yield running
    finally:
        for process in processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()
            _pipe(process.stdout).close()


def command(cluster: str, most_rps: float, index: int, options: Options) -> list[str]:
    """Returns the generator's command line.

    There are enough workers for every request to run into its timeout. Fewer would limit the rate.
    """
    return [
        options.program,
        f"-name={cluster}",
        f"-targets={_file(options, cluster, 'targets')}",
        f"-output={_file(options, cluster, 'json')}",
        f"-timeout={options.timeout_s}s",
        f"-max-workers={math.ceil(most_rps * options.timeout_s * 1.2) + 10}",
        f"-seed={options.seed * 1000 + index}",
    ]


def check_sent(samples: Samples, expected: float, cluster: str) -> None:
    """Raises LoadError when fewer requests were sent than a Poisson process can explain.

    Results under less load look too good. Five standard deviations, and 2 %, are allowed.
    """
    least = 0.98 * expected - 5 * math.sqrt(expected) - 1
    if len(samples) < least:
        raise LoadError(
            f"{cluster}: {len(samples)} of about {expected:.0f} requests were sent; at least {least:.0f} are "
            "needed: the machine is too busy, or the rate too high for it"
        )


def _started(arguments: list[str], errors: IO[bytes]) -> subprocess.Popen[bytes]:
    try:
        # A session of its own: an interrupt at the terminal reaches the lab, which then ends it.
        return subprocess.Popen(
            arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
    except OSError as error:
        raise LoadError(f"{arguments[0]}: cannot be started: {error}") from error


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None  # it was asked for
    return pipe


def _file(options: Options, cluster: str, kind: str) -> Path:
    return options.folder / f"stream-{cluster}.{kind}"
