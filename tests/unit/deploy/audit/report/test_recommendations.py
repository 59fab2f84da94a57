from deploy.audit.report.recommendations import changes, weakest_point
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
