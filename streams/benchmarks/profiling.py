"""Where a job's time goes, as a table of functions.

The table is made from py-spy's samples of the job's stacks (Python and native).
"""

import contextlib
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

# uv installs and runs py-spy at its first use, because nothing else needs it.
_PY_SPY = ("-m", "uv", "tool", "run", "--quiet", "py-spy@0.4.3")
_TOP = 40


def recorder(target: Path, which: str = "--native") -> Callable[[int], AbstractContextManager[None]]:
    """Returns a function that makes a context.

    The context samples the process with the given id, and writes the table to `target`. `which`:
    py-spy's option that selects samples. With --gil, these are the threads that run Python, so
    threads that wait are left out.
    """

    @contextmanager
    def record(pid: int) -> Iterator[None]:
        raw = target.with_suffix(".raw")
        command = [sys.executable, *_PY_SPY, "record", which, "--rate", "97", "--format", "raw"]
        sampler = subprocess.Popen([*command, "--pid", str(pid), "--output", str(raw)])
        try:
            yield
        finally:
            sampler.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                sampler.wait(60)
            if raw.exists():
                target.write_text(table(raw.read_text()))

    return record


def table(samples: str) -> str:
    """Turns lines of `frame;frame;frame count` into a table of functions.

    For each function it gives the share of samples in the function itself, and with what it calls.
    """
    self_samples: Counter[str] = Counter()
    below: Counter[str] = Counter()
    for line in samples.splitlines():
        stack, _, count = line.rpartition(" ")
        frames = stack.split(";")
        self_samples[frames[-1]] += int(count)
        for frame in set(frames):
            below[frame] += int(count)
    total = max(sum(self_samples.values()), 1)
    lines = [f"{total} samples", f"{'self':>7}{'total':>8}  function"]
    for frame, count in self_samples.most_common(_TOP):
        lines.append(f"{count / total:>7.1%}{below[frame] / total:>8.1%}  {frame}")
    lines += ["", f"{'total':>7}  with what it calls"]
    lines += [f"{count / total:>7.1%}  {frame}" for frame, count in below.most_common(_TOP)]
    return "\n".join(lines) + "\n"
