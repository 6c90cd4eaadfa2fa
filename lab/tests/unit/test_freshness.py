"""The age of boards is read off their own times. No Redis is needed."""

import math

import pytest
from spillway_lab.experiments.freshness import Reading, ages_s, percentile_s, waits_s

WEST, EAST = ("west", "api GET /"), ("east", "api GET /")


def test_each_step_of_an_entry_is_a_batch_that_has_arrived() -> None:
    """The first reading shows no step. An entry that stands still arrives nothing."""
    readings = [Reading(10.0, {WEST: 9.0}), Reading(10.5, {WEST: 9.0}), Reading(11.0, {WEST: 10.75})]
    assert waits_s(readings) == pytest.approx([0.25, 0.0])


def test_entries_of_clusters_step_independently() -> None:
    readings = [Reading(10.0, {WEST: 9.0, EAST: 9.5}), Reading(11.0, {WEST: 10.0, EAST: 10.5})]
    assert sorted(waits_s(readings)) == pytest.approx([0.0, 0.0, 0.5, 1.0])


def test_a_board_that_stopped_shows_in_the_waits() -> None:
    readings = [Reading(t, {WEST: 9.0}) for t in (10.0, 20.0, 70.0)]
    assert waits_s(readings) == [60.0]


def test_an_entry_that_went_back_is_no_arrival() -> None:
    """A worker that takes over may know less than its predecessor for a while."""
    readings = [Reading(10.0, {WEST: 9.0}), Reading(11.0, {WEST: 8.0}), Reading(12.0, {WEST: 11.5})]
    assert waits_s(readings) == pytest.approx([0.5, 0.0])


def test_an_expired_entry_grows_older() -> None:
    readings = [Reading(10.0, {WEST: 9.0}), Reading(20.0, {})]
    assert ages_s(readings) == [1.0, 11.0]


def test_percentiles_of_nothing_are_unknown() -> None:
    assert math.isnan(percentile_s([], 0.99))
    assert percentile_s([1.0, 2.0, 3.0], 0.5) == 2.0
