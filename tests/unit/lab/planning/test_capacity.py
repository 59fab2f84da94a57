"""`shuffledp capacity`: the model of costs, and the command."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from typer.testing import CliRunner

from shuffledp.common.errors import PlanError
from shuffledp.deploy.cli import app
from shuffledp.lab.planning import capacity
from shuffledp.lab.planning.capacity import Demand, Workload, cost, predict
from tests.support.command_line import shown, shown_json
from tests.support.tasks import published

_USUAL: Final = Workload(reports_per_day=1e9, deadline_hours=6, opening_microseconds=65)
_SIZES: Final = (1e6, 1e7, 1e8, 1e9)
_PAGE: Final = Path(__file__).parents[4] / "docs" / "operators" / "capacity.md"


def _total(workload: Workload, need: str) -> float:
    return float(sum(getattr(demand, need) for demand in predict(workload)))


def _role(workload: Workload, party: str, role: str) -> Demand:
    [found] = [each for each in predict(workload) if (each.party, each.role) == (party, role)]
    return found


@pytest.mark.parametrize("need", ["processes", "cores", "core_hours", "memory", "disk"])
def test_more_reports_need_no_less(need: str) -> None:
    """Each need in total grows with the reports per day."""
    totals = [_total(replace(_USUAL, reports_per_day=size), need) for size in _SIZES]

    assert sorted(totals) == totals


def test_core_hours_add_up() -> None:
    """All roles together have the costs of all submissions and reports, and nothing else."""
    per_submission = cost("device") + cost("device row") + cost("token")
    stages = ("shuffle", "prove", "send", "receive", "count")
    openings = 5e8 * per_submission + 1e9 * sum(map(cost, stages))

    assert openings * 65e-6 / 3600 == pytest.approx(_total(_USUAL, "core_hours"))


def test_a_second_shuffler_opens_and_permutes_every_layer() -> None:
    """It has lines of its own; the first one's reports are longer, the analyzer's are not."""
    two = replace(_USUAL, shufflers=2)
    stages = ("shuffle", "prove", "count")
    openings = 1e9 * sum(map(cost, stages))
    length = cost("report bytes")
    longer = 1 + cost("layer bytes") / length
    delivered = 1e9 * (longer * cost("receive") + cost("send"))

    for role, spent in (("workers", openings), ("coordinator", delivered)):
        assert spent * 65e-6 / 3600 == pytest.approx(_role(two, "relay", role).core_hours)
    assert 1e9 * cost("relay blocks") == _role(two, "relay", "blocks").disk
    assert not [each for each in predict(_USUAL) if each.party == "relay"]
    for role in ("coordinator", "workers"):
        one, other = (_role(each, "analyzer", role).core_hours for each in (_USUAL, two))
        assert one == other
    one, other = (_role(each, "shuffler", "coordinator").core_hours for each in (_USUAL, two))
    assert longer == pytest.approx(other / one)
    one, other = (_role(each, "shuffler", "front-ends").network for each in (_USUAL, two))
    assert 3 * 1e9 * cost("layer bytes") / 86_400 == pytest.approx((other - one) / 2)


def test_peoples_own_connections_dominate() -> None:
    """They and tokens are 97% of the processor time; relays avoid the former."""
    parts = (("shuffler", "front-ends"), ("issuer", "tokens"))
    relayed = replace(_USUAL, bulk_share=1.0)
    shares = [
        sum(_role(workload, *part).core_hours for part in parts) / _total(workload, "core_hours")
        for workload in (_USUAL, relayed)
    ]

    assert 0.97 == pytest.approx(shares[0], abs=0.01)
    assert _role(relayed, *parts[0]).core_hours < 0.05 * _role(_USUAL, *parts[0]).core_hours
    assert _role(relayed, *parts[1]) == _role(_USUAL, *parts[1])


def test_the_issuer_serves_every_submission() -> None:
    """A token each: twice the reports per user are half the tokens."""
    tokens = _role(_USUAL, "issuer", "tokens")
    halved = _role(replace(_USUAL, reports_per_user=4), "issuer", "tokens")

    assert 5e8 * cost("token") * 65e-6 / 3600 == pytest.approx(tokens.core_hours)
    assert tokens.core_hours / 2 == pytest.approx(halved.core_hours)
    assert tokens.disk / 2 == pytest.approx(halved.disk)


@pytest.mark.parametrize(
    ("hours", "shufflers"), [(1.5, 1), (2, 1), (3, 1), (6, 1), (24, 1), (2.5, 2), (6, 2), (24, 2)]
)
def test_the_workers_meet_the_deadline(hours: float, shufflers: int) -> None:
    """Stages and deliveries, one after the other, take at most the deadline."""
    workload = replace(_USUAL, deadline_hours=hours, shufflers=shufflers)
    stages = [
        each.core_hours / each.processes for each in predict(workload) if each.role == "workers"
    ]
    delivering = [each for each in predict(workload) if each.role == "coordinator"]
    # A relay takes part in both deliveries, whose receivers are busy all the time.
    receiver = delivering[-shufflers]
    delivery = receiver.core_hours / receiver.cores

    assert sum(stages) + delivery < hours


def test_a_shorter_deadline_needs_more_workers() -> None:
    """It changes no front-end."""
    longer, shorter = (replace(_USUAL, deadline_hours=hours) for hours in (12, 2))

    for party in ("shuffler", "analyzer"):
        needed = [_role(each, party, "workers").processes for each in (longer, shorter)]
        assert needed[0] < needed[1]
    assert _role(longer, "shuffler", "front-ends") == _role(shorter, "shuffler", "front-ends")


def test_a_slower_machine_needs_more_cores() -> None:
    """Twice the time per opening is twice the core-hours, and the same disks."""
    slower = replace(_USUAL, opening_microseconds=130)

    assert 2 * _total(_USUAL, "core_hours") == pytest.approx(_total(slower, "core_hours"))
    assert _total(_USUAL, "disk") == _total(slower, "disk")


def test_the_length_of_a_report_is_that_of_a_task() -> None:
    """A categorical task of the default suite."""
    assert published().task.sealed_report_bytes == cost("report bytes")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"reports_per_day": 0}, "reports per day is 0; it must lie between 1 and 1e+12"),
        ({"reports_per_day": float("nan")}, "reports per day is nan"),
        ({"deadline_hours": 25}, "the deadline in hours is 25; it must lie between 0.001 and 24"),
        ({"bulk_share": 1.5}, "the share in bulk is 1.5; it must lie between 0 and 1"),
        ({"reports_per_user": 0}, "reports per user is 0"),
        ({"peak": 0.5}, "the peak factor is 0.5"),
        ({"shufflers": 3}, "shufflers is 3; it must lie between 1 and 2"),
        ({"opening_microseconds": -1}, "the microseconds per opening is -1"),
    ],
)
def test_a_number_out_of_range_is_named(changes: dict[str, Any], message: str) -> None:
    """With its limits."""
    with pytest.raises(PlanError) as caught:
        replace(_USUAL, **changes)

    assert message in str(caught.value)


def test_a_deadline_before_the_end_of_the_delivery_is_refused() -> None:
    """No number of workers would meet it."""
    with pytest.raises(PlanError, match="the delivery of a batch alone"):
        predict(replace(_USUAL, deadline_hours=0.1))


def test_opening_takes_microseconds() -> None:
    """On any machine that runs these tests."""
    assert 1e-6 < capacity.measure_opening_seconds(0.01) < 1e-2


def test_the_command_prints_json_or_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have a row per role, and the opening time may be measured here."""
    monkeypatch.setattr(capacity.measure_opening_seconds, "__defaults__", (0.02,))
    command = ("capacity", "--reports-per-day", "1e8", "--deadline", "6")
    demands = shown_json(*command)["demands"]

    assert ["front-ends", "PostgreSQL", "tokens", *2 * ["coordinator", "workers", "blocks"]] == [
        demand["role"] for demand in demands
    ]
    assert "of them for the front-ends and" in shown(*command, "--opening-microseconds", "65")


def test_the_command_refuses_words_for_numbers() -> None:
    """A usage error, with the option's name."""
    printed = CliRunner().invoke(app, ["capacity", "--reports-per-day", "many", "--deadline", "6"])

    assert 2 == printed.exit_code
    assert "--reports-per-day" in printed.output


def test_the_page_has_the_predictions_and_the_costs() -> None:
    """Its tables are what the model says."""
    text = _PAGE.read_text(encoding="utf-8")
    rows = [predict(replace(_USUAL, reports_per_day=size)) for size in _SIZES]
    for of_role in zip(*rows, strict=True):
        needs = [capacity.cells(demand) for demand in of_role]
        shown = [f"{needed[3]}, {', '.join(needed[5:])}" for needed in needs]
        assert f"| {' '.join(needs[0][:2])} | {' | '.join(shown)} |" in text
    for name, each in capacity.COSTS.items():
        assert f"| {name} | {each['value']:,.10g} | {each['unit']} | {each['source']} |" in text
