import re
from pathlib import Path

import pytest

from common.errors import OverloadError, ShareError, SideCallError, StorageError, TaskError
from common.runtime.failure_counters import WINDOW, Incidents
from common.runtime.metric_table import PARTIES, TABLE, MetricKind, MetricName, Row
from common.runtime.metrics import Metrics
from common.runtime.process_metrics import Vitals, memory_limit
from deploy.audit.harness.clock import ManualClock
from tests.support.scrapes import series_in, value

_UNBOUNDED = re.compile(r"user|peer|task|digest|batch|population|address|connection|person|id$")


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_every_label_has_few_values(row: Row) -> None:
    """None is a person, a connection, a task, a batch or a population."""
    for label, values in row.labels:
        assert not _UNBOUNDED.search(label)
        assert 1 <= len(values) <= 10
        assert all(len(text) < 20 for text in values)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_names_are_prometheus_names(row: Row) -> None:
    """Counters end in _total, gauges do not; every help is a sentence."""
    assert row.name.startswith("shuffledp_")
    assert (row.kind is MetricKind.COUNTER) == row.name.endswith("_total")
    assert row.help.endswith(".")


def test_a_party_has_a_metric_once() -> None:
    """Two rows of one name are for two parties."""
    for party in PARTIES:
        names = [row.name for row in TABLE if party in row.parties]
        assert len(set(names)) == len(names)


async def test_what_is_counted_is_there_from_the_start() -> None:
    """With 0: that a series appears would tell something too."""
    begun = series_in((await Metrics("shuffler").page()).decode())

    assert 0 == value(begun, "shuffledp_batches", state="expired")
    assert 0 == value(begun, "shuffledp_submissions_refused_total", cause="conflict")
    assert {0.0} == set(begun.values())
    assert "shuffledp_up" not in {name for name, _ in begun}


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("shuffledp_batches", {"state": "3fa9"}),
        ("shuffledp_batches", {}),
        ("shuffledp_batches", {"state": "closed", "task_digest": "00"}),
        ("shuffledp_batches", {"cause": "closed"}),
        ("shuffledp_releases_total", {}),
        ("shuffledp_users", {}),
    ],
)
def test_what_is_not_in_the_table_cannot_be_told(name: str, labels: dict[str, str]) -> None:
    """A value, a label, another party's metric, or any other name."""
    metrics = Metrics("shuffler")

    for tell in (metrics.set, metrics.add):
        with pytest.raises(ValueError, match="has no"):
            tell(name, 1.0, labels)  # type: ignore[arg-type]  # what the types forbid


def test_a_counter_only_grows() -> None:
    """It is neither set nor taken back, and a gauge is not advanced."""
    metrics = Metrics("shuffler")
    counter: MetricName = "shuffledp_users_released_total"
    gauge: MetricName = "shuffledp_batches_stuck"
    metrics.add(counter, 5)
    for by in (-3.0, float("nan")):
        with pytest.raises(ValueError, match="only grows"):
            metrics.add(counter, by)
    with pytest.raises(ValueError, match="is no gauge"):
        metrics.set(counter, 1)
    for advance in (metrics.add, metrics.advance_to):
        with pytest.raises(ValueError, match="is no counter"):
            advance(gauge, 1)

    assert [5.0] == list(metrics._values[counter].values())


def test_processes_do_not_share_metrics() -> None:
    """Each has a registry of its own."""
    one, other = Metrics("shuffler"), Metrics("shuffler")
    one.add("shuffledp_users_released_total", 5)

    assert [5.0] == list(one._values["shuffledp_users_released_total"].values())
    assert [0.0] == list(other._values["shuffledp_users_released_total"].values())


async def _told(metrics: Metrics, name: str) -> float:
    return value(series_in((await metrics.page()).decode()), name)


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (OverloadError("no room"), "shuffledp_overloaded"),
        (StorageError("full"), "shuffledp_storage_failing"),
    ],
)
async def test_an_incident_is_told_for_the_whole_of_the_next_five_minutes(
    error: Exception, name: str
) -> None:
    """Not while it happens, however often it does; nor afterwards."""
    clock = ManualClock(100 * WINDOW)
    metrics = Metrics("shuffler")
    incidents = Incidents(metrics, clock)
    found = []
    for minute in range(20):
        clock.seconds = 100 * WINDOW + 60 * minute
        if minute in {1, 2, 3}:
            incidents.note(error)
        found.append(await _told(metrics, name))

    assert [0.0] * 5 + [1.0] * 5 + [0.0] * 10 == found


@pytest.mark.parametrize(
    "error", [ShareError("its share"), SideCallError("aside"), TaskError("no"), ValueError()]
)
async def test_what_one_client_runs_into_is_no_incident(error: Exception) -> None:
    """It had its share, asked for what there is not or for what nobody needs; others are served."""
    clock = ManualClock()
    metrics = Metrics("shuffler")
    incidents = Incidents(metrics, clock)
    incidents.note(error)
    clock.seconds += WINDOW

    assert 0 == await _told(metrics, "shuffledp_overloaded")
    assert 0 == await _told(metrics, "shuffledp_storage_failing")


async def test_free_space_is_told_in_hundredths(tmp_path: Path) -> None:
    """Of the disk, rounded down: no file shows by its own size."""
    vitals = Vitals("shuffler", ManualClock())
    vitals.watch_disk(tmp_path)
    series = series_in((await vitals.metrics.page()).decode())
    size = value(series, "shuffledp_state_size_bytes")
    free = value(series, "shuffledp_state_free_bytes")

    assert 0 <= free <= size
    assert 0 == free % (size // 100)


def test_counted_seconds_never_fall() -> None:
    """A worker ended between two readings, before the system had added it to its parent."""
    metrics = Metrics("shuffler")
    for seconds in (5.0, 3.0, 6.0):
        metrics.advance_to("shuffledp_process_cpu_seconds_total", seconds)
        assert [max(5.0, seconds)] == list(
            metrics._values["shuffledp_process_cpu_seconds_total"].values()
        )


def test_the_memory_of_a_container_is_its_own(tmp_path: Path) -> None:
    """If it is less than the machine's."""
    limit = tmp_path / "memory.max"
    machine = memory_limit(limit)
    for text, expected in (("max\n", machine), ("1048576\n", 1048576), (f"{2**60}\n", machine)):
        limit.write_text(text, encoding="ascii")
        assert expected == memory_limit(limit)
