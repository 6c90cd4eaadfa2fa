"""A fault has no effect elsewhere, whichever part stops, is slow, restarts or lies.

No request fails because of it, no weight rises towards an unknown cluster, and none collapses. The
other application's rules stay, and all is back within a stated time.
"""

import os
import time
from dataclasses import dataclass

import judges
import pytest
from fault_matrix import FAULTS, Fault
from loop_harness import Background, Loop
from watching import UNREADABLE, Watch

pytestmark = pytest.mark.timeout(3600)
_BEFORE_S = 8.0  # the rules of this time are compared with those during the fault
_SETTLED_S = 120.0
INSIDE_S = 1.0  # the longest duration of a request
OTHER = ("kiosk",)  # callers of the application that no fault concerns


@dataclass(frozen=True)
class Course:
    """The course of a fault: when it began and was healed (`time.monotonic`), and the findings.

    `back_s` is the time until all was back. `wrong` lists what went wrong.
    """

    fault: Fault
    began: float
    broken: float
    healed: float
    back_s: float
    wrong: list[str]
    notes: list[str]  # for people: how far weights moved, and what was unknown


def course(loop: Loop, watch: Watch, fault: Fault) -> Course:
    began = time.monotonic()
    fault.inject(loop)
    broken = time.monotonic()
    time.sleep(fault.away_s)
    fault.heal(loop)
    healed, wrong = time.monotonic(), []
    try:
        loop.closed_since(time.time(), fault.back_s)
        whole(watch, healed + fault.back_s)
    except AssertionError as error:
        wrong.append(str(error))
    ended, notes = time.monotonic(), []
    for samples in (watch.published, watch.routed):
        before, during = samples(began - _BEFORE_S, began), samples(began, ended)
        if not before:
            wrong.append(f"no {samples.__name__} weights before the fault")
            continue
        if not fault.steering:
            soon = before + samples(began, began + fault.noticed_s)
            until = began if fault.taken_over else healed
            wrong += judges.rising(soon, samples(began + fault.noticed_s, ended), fault.unknown, until)
            wrong += judges.collapsing(before, during, fault.lost, fault.left, fault.liars)
        wrong += judges.changing(before, [] if fault.lost else during, OTHER)
        notes.append(f"{samples.__name__}: {judges.band(before, during)}")
    before, during = watch.published(began - _BEFORE_S, began), watch.published(began, ended)
    wrong += judges.vanishing(watch.expected(), [] if fault.lost else during, fault.placed, before)
    wrong += judges.misled(before, during, fault.liars) if fault.kind == "lie" else []
    notes += [f"unknown: {judges.reasons(during)}", judges.clock(before, during)]
    return Course(fault, began, broken, healed, ended - healed, wrong, notes)


def settled(watch: Watch) -> None:
    """Waits until the other application's rules are stable. At the start they follow the load."""
    began = time.monotonic()
    while True:
        time.sleep(_BEFORE_S)
        now = time.monotonic()
        found = [samples(now - _BEFORE_S, now) for samples in (watch.published, watch.routed)]
        findings = [line for samples in found for line in judges.changing(samples[:1], samples, OTHER)]
        if all(found) and not findings:
            print(f"rules stand still after {now - began:.0f} s", flush=True)
            return
        assert now < began + _SETTLED_S, f"not settled: {findings}"


def whole(watch: Watch, deadline: float) -> None:
    """Waits until nothing is unknown and every Envoy is placed.

    Raises AssertionError after the deadline that names what is missing.
    """
    while True:
        try:
            findings = judges.missing(watch.now(), watch.expected())
        except UNREADABLE as error:
            findings = [f"{type(error).__name__}: {error}"]
        if not findings:
            return
        assert time.monotonic() < deadline, f"not back: {findings}"
        time.sleep(0.25)


def judged(course: Course, end: float, failures: list[tuple[float, str, str]]) -> list[str]:
    """Returns what went wrong.

    Includes the requests that failed between the beginning of this fault and of the next one.
    """
    failed = [
        f"{reason} ({cluster}, {at - course.broken:+.1f} s)" for at, cluster, reason in failures
        if course.began - INSIDE_S <= at < end - INSIDE_S and cluster not in course.fault.lost
        and not (course.fault.lost and at < course.broken + INSIDE_S)
    ]  # fmt: skip
    return course.wrong + ([f"{len(failed)} requests failed: {failed[:8]}"] if failed else [])


@pytest.fixture(scope="session")
def chosen() -> list[Fault]:
    """The faults that SPILLWAY_FAULTS names, or all faults if it is not set.

    It is read before the stack starts, so that a typing error costs no time.
    """
    named = os.environ.get("SPILLWAY_FAULTS", "")
    parts = [part for part in named.split(";") if part] or [""]
    unknown = [part for part in parts if not any(part in fault.name for fault in FAULTS)]
    if unknown:
        known = "; ".join(fault.name for fault in FAULTS)
        pytest.exit(
            f"SPILLWAY_FAULTS: no fault has {', '.join(map(repr, unknown))} in its name. There are: {known}",
            64,
        )
    return [fault for fault in FAULTS if any(part in fault.name for part in parts)]


@pytest.mark.e2e
def test_a_fault_stays_where_it_is(loop: Loop):
    """The core's faults run in turn under load. All are judged before the test reports."""
    stays(loop, [fault for fault in FAULTS if fault.core])


@pytest.mark.matrix
def test_every_fault_stays_where_it_is(chosen: list[Fault], loop: Loop):
    """All faults run.

    SPILLWAY_FAULTS selects those whose names contain one of its parts (`relay;Redis, lie`).
    """
    stays(loop, chosen)


def stays(loop: Loop, faults: list[Fault]) -> None:
    endless = Background(loop.stack, "faults", 10, endless=True)
    with endless as background, Watch(loop.stack, loop.control) as watch:
        loop.closed_since(time.time())
        settled(watch)
        courses = []
        for n, fault in enumerate(faults, 1):
            courses.append(course(loop, watch, fault))
            away_s = courses[-1].healed - courses[-1].began
            print(
                f"{n:2} of {len(faults)}  {fault.name:32} {away_s:5.1f} s, back in {courses[-1].back_s:5.1f} s",
                flush=True,
            )
            for line in filter(None, courses[-1].notes):
                print("      ", line)
            for line in courses[-1].wrong:
                print("    ! ", line)
    failures = background.failures()
    ends = [later.began for later in courses[1:]] + [time.monotonic()]
    findings = [
        f"{c.fault.name}: {line}"
        for c, end in zip(courses, ends, strict=True)
        for line in judged(c, end, failures)
    ]
    assert not findings, "\n" + "\n".join(findings)
