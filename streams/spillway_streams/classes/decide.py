"""The decision about one service: new rules and findings from its memory and the rules in force."""

from collections.abc import Iterable
from dataclasses import replace

from spillway_streams.classes import bound, describe, learn, merge, pattern, rules
from spillway_streams.classes.compare import sampled
from spillway_streams.classes.findings import Finding
from spillway_streams.classes.memory import Names, ServiceMemory
from spillway_streams.classes.options import Options
from spillway_streams.classes.rules import Rule
from spillway_streams.classes.view import Key, View


class Decider:
    """Decides about services.

    Between decisions it remembers only how often in a row a condition held, where comparisons
    continue, and when a class was last requested.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._streaks: dict[str, _Streaks] = {}  # by service
        self._resume: dict[Key, int] = {}  # (service, method) -> seed to continue comparisons with
        self._asked_at: dict[str, dict[Key, int]] = {}  # by service

    def decide(
        self, service: str, memory: ServiceMemory, names: Names, history: list[Rule], now_ms: int
    ) -> tuple[list[Rule], list[Finding]]:
        """Returns the new rules and the findings.

        `history`: all rules of the service, including the scheduled ones.
        """
        view = self._view(service, memory, names, history, now_ms)
        streaks = self._streaks[service] = _Streaks(self._streaks.get(service))
        written = self._learn(view)
        fresh = {key for key in view.live if any(rule.names(*key) for rule in written)}
        tested = [key for key in self._tested(view) if key not in fresh]
        describe.look(view, tested, self._options)
        merged, nearest, tests = self._merge(view, tested, streaks)
        written += merged + self._unmerge(view, tested, streaks) + self._retire(view)
        written += self._bound(view, written, _opened_ms(history))
        return written, describe.findings(view, nearest, tests, self._options)

    def forget(self, services: Iterable[str]) -> None:
        """Drops what is remembered of these services."""
        gone = set(services)
        self._resume = {key: n for key, n in self._resume.items() if key[0] not in gone}
        for service in gone:
            self._streaks.pop(service, None)
            self._asked_at.pop(service, None)

    def _view(
        self, service: str, memory: ServiceMemory, names: Names, history: list[Rule], now_ms: int
    ) -> View:
        view = View(service, now_ms, memory, names, rules.in_force(history, now_ms + rules.DELAY_MS))
        for key, kept in memory.classes.items():
            rule = view.rule(key)
            if kept.seen and (rule is None or not rule.template or rule.becomes == key[1]):
                view.live[key] = kept
        return view

    def _learn(self, view: View) -> list[Rule]:
        """Returns rules for templates that no rule names yet."""
        by_method: dict[str, list[learn.Seen]] = {}
        for (method, template), kept in view.live.items():
            rule = view.rule((method, template))
            if (
                template != pattern.OTHER
                and (rule is None or rule.kind == rules.BOUNDED)
                and not view.is_pinned((method, template))
            ):
                entry = learn.Seen(pattern.segments(template), kept.requests, kept.seen)
                by_method.setdefault(method, []).append(entry)
        written = []
        for method, seen in sorted(by_method.items()):
            known = learn.known_positions(
                rule.template
                for rule in view.in_force
                if rule.kind == rules.LEARNED and rule.method == method
            )
            for new in learn.learn(seen, view.memory.evicted.get(method, 0), known, self._options):
                reason = f"{new.words} words at one position, {new.unseen:.1%} of the requests had a new one"
                if new.pattern == new.becomes:
                    reason = "often requested, among " + reason
                rule = view.write(method, new.pattern, new.becomes, rules.LEARNED, reason)
                written.append(replace(rule, effect=new.unseen, samples=new.seen))
        return written

    def _tested(self, view: View) -> list[Key]:
        """Returns the classes with enough calls, the most requested first, without pinned ones."""
        keys = [key for key in view.live if key[1] != pattern.OTHER and not view.is_pinned(key)]
        keys.sort(key=lambda key: (-view.live[key].requests, key))
        for key in keys:
            if view.live[key].seen >= self._options.min_samples:
                view.samples[key] = sampled(view.live[key])
        return [
            key
            for key in keys
            if key in view.samples and len(view.samples[key].ms) >= self._options.min_samples
        ]

    def _merge(
        self, view: View, tested: list[Key], streaks: "_Streaks"
    ) -> tuple[list[Rule], dict[Key, merge.Nearest], int]:
        written: list[Rule] = []
        nearest: dict[Key, merge.Nearest] = {}
        tests = 0
        for method in sorted({method for method, _ in tested}):
            templates = [template for m, template in tested if m == method]
            whole = [template for template in templates if not view.modes[method, template].clear]
            samples = {template: view.samples[method, template] for template in templates}
            exists = lambda template, method=method: (method, template) in view.live  # noqa: E731
            pending = streaks.pending(rules.MERGED, method)
            turn = self._resume.get((view.service, method), 0)
            book = merge.Book(samples, self._options)
            found, turn = merge.merges(whole, exists, book, pending, turn)
            self._resume[view.service, method] = turn
            tests += book.used
            nearest |= {(method, template): near for template, near in book.nearest.items()}
            for proposal in found:
                if (
                    streaks.longer(rules.MERGED, method, proposal.template, proposal.target)
                    >= self._options.confirm
                ):
                    written += _merged(view, method, proposal)
        return written, nearest, tests

    def _unmerge(self, view: View, tested: list[Key], streaks: "_Streaks") -> list[Rule]:
        """Splits a merged class that has two clear modes again.

        Its rules end. Requests that Envoys still count under the class go to /other, until their
        route tables drop it.
        """
        written = []
        for key in tested:
            makers = view.makers(key, rules.MERGED)
            if not makers or not view.modes[key].clear:
                continue
            if streaks.longer("apart", *key) < self._options.confirm:
                continue
            method, template = key
            reason = (
                f"two modes, {view.modes[key].separation:.1f} spreads apart, since its classes were merged"
            )
            written += [view.write(method, rule.template, "", rules.RETIRED, reason) for rule in makers]
            written.append(
                view.write(method, template, pattern.OTHER, rules.BOUNDED, "until its route is forgotten")
            )
            written.append(
                view.write(method, template, "", rules.RETIRED, "its route is forgotten", self._options.drain)
            )
        return written

    def _retire(self, view: View) -> list[Rule]:
        """Ends rules of the job whose class had no request in a long time.

        Only the time that this process has observed counts.
        """
        written, limit = [], self._options.retire_after
        made = [rule for rule in view.in_force if rule.kind in (rules.LEARNED, rules.MERGED)]
        before = self._asked_at.pop(view.service, {})
        self._asked_at[view.service] = asked_at = {}
        for rule in made:
            key = (rule.method, rule.becomes)
            asked_at[key] = view.now_ms if key in view.live else before.get(key, view.now_ms)
            if view.now_ms - asked_at[key] > limit * 1000:
                reason = f"no request in {limit / 3600:.0f} h"
                written.append(view.write(rule.method, rule.template, "", rules.RETIRED, reason))
        return written

    def _bound(self, view: View, written: list[Rule], opened_ms: int) -> list[Rule]:
        """Names the most requested classes and bounds the rest, if there are too many classes.

        `opened_ms`: when the last lease ended, or will end.
        """
        if view.now_ms < opened_ms + self._options.look * 1000:
            return []
        ahead = sorted([*view.in_force, *(r for r in written if r.becomes)], key=lambda rule: rule.order)
        asked: dict[Key, float] = {}
        for (method, template), rate in bound.rates(view.live, opened_ms / 1000, view.now_ms / 1000).items():
            rule = rules.match(ahead, method, template)
            key = (method, rule.becomes if rule else template)
            if key[1] != pattern.OTHER:
                asked[key] = asked.get(key, 0.0) + rate
        count, most = len(asked), self._options.classes_per_service
        if count <= most:
            return []
        named = {r.template: r for r in view.in_force if r.kind == rules.BOUNDED and r.template == r.becomes}
        keep = bound.most_asked(asked, set(named), most)
        return self._lease(view, keep, named, f"{count} classes, at most {most}: ")

    def _lease(self, view: View, keep: set[str], named: dict[str, Rule], reason: str) -> list[Rule]:
        """Returns rules that name the most requested templates, and send the rest to /other.

        The rules are of any method. No other rule of the job has that key, so they end no other
        rule. The rest stays in /other for the time of the lease.
        """
        written = [
            view.write("", template, template, rules.BOUNDED, reason + "among the most requested")
            for template in sorted(keep - named.keys())
        ]
        written += [
            view.write("", template, "", rules.RETIRED, reason + "no longer among the most requested")
            for template in sorted(named.keys() - keep)
        ]
        written.append(view.write("", "", pattern.OTHER, rules.BOUNDED, reason + "the rest"))
        written.append(view.write("", "", "", rules.RETIRED, "the lease has ended", self._options.lease))
        return written


class _Streaks:
    """How many decisions in a row a condition of a service held, including this one.

    A condition that did not hold in the last decision starts again.
    """

    def __init__(self, last: "_Streaks | None") -> None:
        self._before = last._now if last else {}
        self._now: dict[tuple[str, ...], int] = {}

    def longer(self, *key: str) -> int:
        self._now[key] = self._before.get(key, 0) + 1
        return self._now[key]

    def pending(self, kind: str, method: str) -> set[tuple[str, str]]:
        """Returns (template, target) of the last decision's keys that begin with these two."""
        return {(key[2], key[3]) for key in self._before if key[:2] == (kind, method)}


def _opened_ms(history: list[Rule]) -> int:
    """Returns when the newest lease ends, in Unix milliseconds; 0 if there never was one."""
    ends = (rule.effective_from for rule in history if not rule.template and rule.kind == rules.RETIRED)
    return max(ends, default=0)


def _merged(view: View, method: str, proposal: merge.Merge) -> list[Rule]:
    """Returns the rules of a merge.

    One is for the class's own template. Rules are applied only once, so every pattern that makes
    the class gets a rule as well.
    """
    makers = view.makers((method, proposal.template), rules.MERGED, rules.LEARNED)
    comparison = proposal.comparison
    reason = (
        f"alike: distance {comparison.distance:.3f}, means 1:{comparison.ratio:.2f}, "
        f"calls per request differ by {comparison.child_difference:.3f} at most"
    )
    return [
        replace(
            view.write(method, template, proposal.target, rules.MERGED, reason),
            statistic=comparison.statistic,
            p_value=comparison.p_value,
            effect=comparison.distance,
            samples=comparison.samples,
        )
        for template in sorted({proposal.template, *(rule.template for rule in makers)})
    ]
