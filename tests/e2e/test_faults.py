"""A fault stays where it is: whatever part stops, is slow, restarts or lies, no request fails because of it, no weight
rises towards what is unknown, none collapses, the other application's rules stay, and all is back in a stated time."""

import os
import time
from dataclasses import dataclass

import pytest
import watching
from fault_matrix import FAULTS, Fault
from loop_harness import Background, Loop
from watching import NOTICED_S, Watch

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]
_BEFORE_S = 8.0  # whose rules are what a fault is held against
INSIDE_S = 1.0  # the longest that a request is under way
OTHER = ("kiosk",)  # callers of the application that no fault is about


@dataclass(frozen=True)
class Course:
    """When a fault began and was healed (Unix seconds), how long until all was back, and what went wrong."""

    fault: Fault
    began: float
    broken: float
    healed: float
    back_s: float
    wrong: list[str]


def course(loop: Loop, watch: Watch, fault: Fault) -> Course:
    began = time.time()
    before = watch.between(began - _BEFORE_S, began)
    fault.inject(loop)
    broken = time.time()
    time.sleep(fault.away_s)
    fault.heal(loop)
    healed, wrong = time.time(), []
    try:
        loop.closed_since(healed, fault.back_s)
    except AssertionError as error:
        wrong.append(str(error))
    ended = time.time()
    soon = before + watch.between(began, began + NOTICED_S)
    wrong += watching.rising(soon, watch.between(began + NOTICED_S, healed), fault.unknown)
    during = watch.between(began, ended)
    wrong += watching.collapsing(before, during, fault.lost)
    wrong += watching.changing(before, [] if fault.lost else during, OTHER)
    wrong += watching.vanishing(loop.stack, [] if fault.lost else during, fault.lost, fault.placed)
    return Course(fault, began, broken, healed, ended - healed, wrong)


def judged(course: Course, end: float, failures: list[tuple[float, str, str]]) -> list[str]:
    """What went wrong, with the requests that failed from the fault's begin to the next one's."""
    failed = [
        f"{reason} ({cluster}, {at - course.broken:+.1f} s)" for at, cluster, reason in failures
        if course.began - INSIDE_S <= at < end - INSIDE_S and cluster not in course.fault.lost
        and not (course.fault.lost and at < course.broken + INSIDE_S)
    ]  # fmt: skip
    return course.wrong + ([f"{len(failed)} requests failed: {failed[:8]}"] if failed else [])


def test_a_fault_stays_where_it_is(loop: Loop):
    """Every fault of the matrix in turn, under load; all are judged, then all that went wrong is said. SPILLWAY_FAULTS
    may be a part of the names of those that are wanted (`SPILLWAY_FAULTS=relay`)."""
    wanted = os.environ.get("SPILLWAY_FAULTS", "")
    background = Background(loop.stack, "faults", 10, endless=True)
    loop.closed_since(time.time())
    with Watch(loop.stack, loop.control) as watch:
        time.sleep(_BEFORE_S)
        courses = []
        for fault in (f for f in FAULTS if wanted in f.name):
            courses.append(course(loop, watch, fault))
            print(
                f"{fault.name:32} {courses[-1].healed - courses[-1].began:5.1f} s, back in {courses[-1].back_s:5.1f} s"
            )
            for line in courses[-1].wrong:
                print("    ", line)
    failures = background.failures()
    ends = [later.began for later in courses[1:]] + [time.time()]
    said = [
        f"{c.fault.name}: {line}"
        for c, end in zip(courses, ends, strict=True)
        for line in judged(c, end, failures)
    ]
    assert not said, "\n" + "\n".join(said)
