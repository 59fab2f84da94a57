import math

import pytest

from deploy.audit.report.recommendations import changes, variants, weakest_point
from tests.support.audit_reports import demo_report, finding, noiseless_report, report_of
from tests.support.protocol_tasks import protocol_task


def test_for_the_demo_it_is_local_noise_and_separate_operators() -> None:
    """And not more users or dummies, which is said."""
    point = weakest_point(demo_report())
    noise, apart, crowd = changes(demo_report(), point)

    assert "Lower local_epsilon, for example from 4 to 2" == noise.action
    assert "different organisations" in apart.action
    assert not crowd.helps
    assert "dummies do not help" in crowd.action


def test_without_local_noise_it_is_to_be_added() -> None:
    """By another protocol, since this one has none."""
    noise, *_ = changes(noiseless_report(), weakest_point(noiseless_report()))

    assert "add noise" in noise.action
    assert "mixdump" in noise.why


def test_where_no_shuffler_is_relied_on_one_would_help() -> None:
    """Against the analyzer, who then knows whose report is whose."""
    report = report_of(protocol_task("ldp-grr"), (finding(),), n_users=1000)

    actions = [change.action for change in changes(report, weakest_point(report))]

    assert any("relies on a shuffler" in action for action in actions)


def test_figures_show_what_helps_and_what_does_not() -> None:
    """Half the local epsilon halves the weakest point; users and dummies leave it as it is."""
    found = variants(demo_report(), weakest_point(demo_report()))
    now, noise, users, dummies = found

    assert [4.0, 2.0, 4.0, 4.0] == [variant.weakest_epsilon for variant in found]
    assert max(noise.claimed_epsilon, users.claimed_epsilon, dummies.claimed_epsilon) < 0.1
    assert pytest.approx(now.error / math.sqrt(2), rel=1e-6) == users.error
    assert now.error < dummies.error < noise.error


def test_a_protocol_with_noise_stands_in_for_one_without() -> None:
    """So that there is a figure for what is advised."""
    now, noise, *_ = variants(noiseless_report(), weakest_point(noiseless_report()))

    assert math.isinf(now.weakest_epsilon)
    assert noise.weakest_epsilon <= 4.0


@pytest.mark.parametrize("protocol", ["ldp-grr", "ldp-sw", "ddps", "aue", "sbin", "hybrid"])
def test_every_kind_of_task_has_figures(protocol: str) -> None:
    """At least of itself, and of twice the users."""
    report = report_of(protocol_task(protocol), (finding(),), n_users=1000)
    names = [variant.name for variant in variants(report, weakest_point(report))]

    assert "The task as it is" == names[0]
    assert "Twice as many users" in names
    assert changes(report, weakest_point(report))
