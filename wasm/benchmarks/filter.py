"""What the filter costs: the same Envoy with and without it. `make bench-filter`; the last line is JSON.

Each hop of the sidecar (inbound, outbound) is driven alone, every request carries a sampled trace, and
plain and filtered runs alternate round by round. Envoy has one worker and one core to itself; client,
application and collector share the other. The run fails unless every request was answered 200 and the
collector received exactly one span for each, so a filter that does less is no faster here.
"""

import argparse
import json
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from filter_bench import envoys
from filter_bench.bench import DIRECTIONS, Bench
from filter_bench.summary import SATURATION, Sample, summarize
from spillway_contracts.names import FILTER_STAT_SPANS_DROPPED, FILTER_STAT_SPANS_SENT

# Below this share of the rate asked for, queueing before the proxy dominates what the client sees.
RATE_KEPT = 0.99


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def measure(arguments: argparse.Namespace) -> dict:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-filter-")))
        bench = Bench(arguments.wasm, folder, stack)
        for direction in arguments.directions:
            bench.run(0, direction, arguments.warm_up_rate, arguments.warm_up)
        samples: list[Sample] = []
        for number in range(arguments.rounds):
            for rate in arguments.rates:
                for direction in arguments.directions:
                    pair = bench.run(number, direction, rate, arguments.seconds)
                    samples += pair
                    say(f"round {number + 1}/{arguments.rounds} {row(pair)}")
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


def row(pair: list[Sample]) -> str:
    plain, filtered = sorted(pair, key=lambda sample: sample.filtered)
    return (
        f"{plain.direction:8} {plain.rate or 'max':>5}/s: {plain.cpu_us:6.1f} -> {filtered.cpu_us:6.1f} us CPU "
        f"({filtered.cpu_us / plain.cpu_us:.2f}x), p50 {plain.p50_ms:.3f} -> {filtered.p50_ms:.3f} ms, "
        f"p99 {plain.p99_ms:.3f} -> {filtered.p99_ms:.3f} ms, {plain.answered:.0f} -> {filtered.answered:.0f}/s, "
        f"busy {plain.busy:.0%} -> {filtered.busy:.0%}"
    )


def table(figures: dict) -> str:
    keys = ("cpu_ratio", "cpu_added_us", "added_p50_ms", "added_p99_ms")
    lines = [f"{'rate':>10} {'hop':8}" + "".join(f"{key:>14}" for key in keys) + f"{'answers/s':>18}"]
    for rate, hops in figures["rates"].items():
        for direction, hop in hops.items():
            answers = f"{hop['plain']['answered']:.0f} -> {hop['filtered']['answered']:.0f}"
            values = "".join(f"{hop[key]:14.3f}" for key in keys)
            lines.append(f"{rate:>10} {direction:8}{values}{answers:>18}")
    return "\n".join(lines)


def arguments_of(given: list[str] | None) -> argparse.Namespace:
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
