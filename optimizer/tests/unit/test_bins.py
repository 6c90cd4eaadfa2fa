"""How applications and their time are distributed over workers, and how many of these there are."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spillway_optimizer.process.cgroups import cores, memory
from spillway_optimizer.workers.bins import bins, saving, shares
from spillway_optimizer.workers.parallel import room

SIZES = st.dictionaries(st.text("abcdef", min_size=1, max_size=3), st.integers(1, 1000), min_size=1)


@given(SIZES, st.integers(1, 8))
def test_every_application_is_in_one_bin_and_each_bin_uses_all_of_the_time(sizes, count):
    """So no application has less time than when all are solved one after the other."""
    found = bins(sizes, count)
    assert sorted(name for names in found for name in names) == sorted(sizes)
    assert len(found) == min(count, len(sizes)) and all(found)
    for names in found:
        share = shares(sizes, names)
        assert sum(share.values()) == pytest.approx(1.0)
        assert all(share[name] >= sizes[name] / sum(sizes.values()) - 1e-12 for name in names)


@given(SIZES, st.integers(1, 8))
def test_no_bin_is_fuller_than_the_mean_and_one_application(sizes, count):
    """The bound of every list schedule: mean + (1 - 1 / count) * largest."""
    fullest = max(sum(sizes[name] for name in names) for names in bins(sizes, count))
    mean, largest = sum(sizes.values()) / count, max(sizes.values())
    assert fullest <= mean + (1 - 1 / count) * largest + 1e-9


def test_what_is_saved_is_all_but_the_longest_bin():
    assert saving({"a": 3.0, "b": 2.0, "c": 1.0}, [["a"], ["b", "c"]]) == 3.0
    assert saving({"a": 3.0}, [["a"], ["b"]]) == 0.0 == saving({}, [])


def _tree(root: Path, cgroup: str, files: dict[str, str]) -> Path:
    for name, text in {"proc/self/cgroup": cgroup, **files}.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


@pytest.mark.parametrize(
    ("cgroup", "files", "expected"),
    [
        ("0::/\n", {"sys/fs/cgroup/cpu.max": "max 100000\n"}, 16),
        ("0::/\n", {"sys/fs/cgroup/cpu.max": "350000 100000\n"}, 3),
        ("0::/\n", {"sys/fs/cgroup/cpu.max": "50000 100000\n"}, 1),
        ("0::/a/b\n", {"sys/fs/cgroup/a/cpu.max": "200000 100000\n"}, 2),
        (
            "0::/a/b\n",
            {"sys/fs/cgroup/a/cpu.max": "200000 100000\n", "sys/fs/cgroup/a/b/cpu.max": "max 100000\n"},
            2,
        ),
        ("0::/kubepods/pod7\n", {"sys/fs/cgroup/cpu.max": "500000 100000\n"}, 5),
        (
            "5:memory:/a\n4:cpu,cpuacct:/a\n0::/\n",
            {
                "sys/fs/cgroup/cpu/a/cpu.cfs_quota_us": "400000\n",
                "sys/fs/cgroup/cpu/a/cpu.cfs_period_us": "100000\n",
            },
            4,
        ),
        (
            "4:cpu,cpuacct:/docker/7\n",
            {"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n"},
            16,
        ),
        ("0::/\n", {}, 16),
        ("\nnone\n0::/\n", {"sys/fs/cgroup/cpu.max": "200000 100000\n"}, 2),
        ("0::/../..\n", {"sys/fs/cgroup/cpu.max": "200000 100000\n"}, 2),
        ("0::/a:b\n", {"sys/fs/cgroup/a:b/cpu.max": "200000 100000\n"}, 2),
    ],
)
def test_cores_are_those_of_the_affinity_within_the_cgroups_quotas(
    tmp_path, monkeypatch, cgroup, files, expected
):
    """Version 2, version 1, a limit of a folder above, a path that a container cannot see.

    Lines that are malformed are skipped.
    """
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))
    assert cores(_tree(tmp_path, cgroup, files)) == expected


def test_without_cgroups_the_affinity_counts(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 5})
    assert cores(tmp_path) == 2


@pytest.mark.parametrize(
    ("cgroup", "files", "expected"),
    [
        ("0::/\n", {"sys/fs/cgroup/memory.max": "2147483648\n"}, 2 << 30),
        ("0::/\n", {"sys/fs/cgroup/memory.max": "max\n"}, float("inf")),
        ("0::/\n", {}, float("inf")),
        (
            "0::/a/b\n",
            {"sys/fs/cgroup/a/memory.max": "1000\n", "sys/fs/cgroup/a/b/memory.max": "max\n"},
            1000,
        ),
        ("3:memory:/docker/7\n", {"sys/fs/cgroup/memory/memory.limit_in_bytes": "3000\n"}, 3000),
    ],
)
def test_memory_is_the_least_limit_of_the_cgroups(tmp_path, cgroup, files, expected):
    assert memory(_tree(tmp_path, cgroup, files)) == expected


@pytest.mark.parametrize(
    ("processes", "available", "gib", "count", "mib"),
    [
        (0, 16, float("inf"), 4, 1024),  # without a limit of memory
        (0, 2, 2, 2, 512),  # as the chart limits it
        (0, 16, 2, 4, 256),
        (0, 16, 1.6, 2, 307),
        (0, 16, 1.25, 1, 256),  # no room for two
        (0, 16, 0.5, 1, 256),
        (0, 1, 64, 1, 1024),
        (8, 2, 2, 8, 256),  # as the operator wishes
        (1, 16, 64, 1, 1024),
    ],
)
def test_workers_fit_into_the_container_beside_the_leader_and_its_audit(
    processes, available, gib, count, mib
):
    """One GiB is kept for these. A worker has 256 MiB to 1 GiB."""
    found = room(processes, available, gib * (1 << 30))
    assert found == (count, pytest.approx(mib << 20, rel=2e-3))


def test_the_limits_of_this_machine_can_be_read():
    assert cores() >= 1 and memory() > 0
