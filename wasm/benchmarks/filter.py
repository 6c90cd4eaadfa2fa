"""What the filter costs: the same Envoy with and without it.

`make bench-filter`; the last line is JSON.

Each hop of the sidecar (inbound, outbound) is driven alone, every request carries a sampled trace,
and plain and filtered runs alternate round by round. Envoy has one worker and one core to itself;
client, application and collector share the other. The run fails unless every request was answered
200 and the collector received exactly one span for each, so a filter that does less is no faster
here.

With `--baseline FILE.wasm` a third Envoy runs another build of the filter in the same rounds, and
the figures also say what the build under test adds to that.
"""

import argparse
import json
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from filter_bench import envoys
from filter_bench.bench import DIRECTIONS, Bench
from filter_bench.summary import BASELINE, FILTERED, PLAIN, SATURATION, Sample, summarize
from spillway_contracts.names import FILTER_STAT_SPANS_DROPPED, FILTER_STAT_SPANS_SENT

# Below this share of the requested rate, queueing before the proxy dominates client latencies.
RATE_KEPT = 0.99


def say(text: str) -> None:
    """Writes a line of progress to standard error."""
    print(text, file=sys.stderr, flush=True)


def measure(arguments: argparse.Namespace) -> dict:
    """Runs the whole benchmark: a warm-up, then all rounds. Returns its figures."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-filter-")))
        bench = Bench(arguments.wasm, arguments.baseline, folder, stack)
        for direction in arguments.directions:
            bench.run(0, direction, arguments.warm_up_rate, arguments.warm_up)
        samples: list[Sample] = []
        for number in range(arguments.rounds):
            for rate in arguments.rates:
                for direction in arguments.directions:
                    run = bench.run(number, direction, rate, arguments.seconds)
                    samples += run
                    say(f"round {number + 1}/{arguments.rounds} {row(run)}")
        return {
            "benchmark": "filter",
            **summarize(samples, arguments.headline_rate),
            "rss_mb": bench.rss_mb(),
            "requests_traced": bench.traced,
            "spans_sent": bench.stat(FILTER_STAT_SPANS_SENT),
            "spans_dropped": bench.stat(FILTER_STAT_SPANS_DROPPED),
            "rounds": arguments.rounds,
            "seconds": arguments.seconds,
        }


def row(run: list[Sample]) -> str:
    """Returns one line of progress: a run's variants side by side."""
    by = {sample.variant: sample for sample in run}
    of = [by[name] for name in (PLAIN, BASELINE, FILTERED) if name in by]
    plain = of[0]

    def each(text: str, field: str) -> str:
        return " -> ".join(format(getattr(sample, field), text) for sample in of)

    ratios = ", ".join(f"{sample.cpu_us / plain.cpu_us:.2f}x" for sample in of[1:])
    return (
        f"{plain.direction:8} {plain.rate or 'max':>5}/s: {each('6.1f', 'cpu_us')} us CPU ({ratios}), "
        f"p50 {each('.3f', 'p50_ms')} ms, p99 {each('.3f', 'p99_ms')} ms, {each('.0f', 'answered')}/s, "
        f"busy {each('.0%', 'busy')}"
    )


COLUMNS = ("cpu_ratio", "cpu_added_us", "added_p50_ms", "added_p99_ms")


def table(figures: dict) -> str:
    """Returns the figures as a text table, one row per rate, hop and comparison."""
    lines = [f"{'rate':>10} {'hop':8} {'what':23}" + "".join(f"{key:>14}" for key in COLUMNS)]
    for rate, hops in figures["rates"].items():
        for direction, hop in hops.items():
            rows = {"filtered over plain": hop}
            for key in ("baseline_over_plain", "filtered_over_baseline"):
                if key in hop:
                    rows[key.replace("_", " ")] = hop[key]
            for what, of in rows.items():
                values = "".join(f"{of[key]:14.3f}" for key in COLUMNS)
                lines.append(f"{rate:>10} {direction:8} {what:23}{values}")
    return "\n".join(lines)


def arguments_of(given: list[str] | None) -> argparse.Namespace:
    """Parses the command line. The headline rate must be one of the rates."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4, help="of each run")
    parser.add_argument(
        "--rates", type=int, nargs="+", default=[500, 2000, SATURATION], help="0: as fast as it goes"
    )
    parser.add_argument("--directions", nargs="+", default=list(DIRECTIONS), choices=DIRECTIONS)
    parser.add_argument("--warm-up", type=float, default=4, help="seconds, each variant and hop")
    parser.add_argument("--warm-up-rate", type=int, default=2000)
    parser.add_argument("--headline-rate", type=int, default=2000)
    parser.add_argument("--wasm", type=Path, default=envoys.ROOT / ".spillway/wasm/spillway_filter.wasm")
    parser.add_argument("--baseline", type=Path, help="another build of the filter to compare with")
    parser.add_argument("--json", action="store_true", help="the JSON line alone")
    arguments = parser.parse_args(given)
    if arguments.headline_rate not in arguments.rates:
        parser.error(f"--headline-rate: {arguments.headline_rate} is not one of --rates {arguments.rates}")
    return arguments


def main() -> None:
    arguments = arguments_of(None)
    figures = measure(arguments)
    if figures["rate_kept"] < RATE_KEPT:
        say(f"the machine was busy: {figures['rate_kept']:.1%} of a rate was kept, latencies say nothing")
    if not arguments.json:
        print(table(figures))
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
