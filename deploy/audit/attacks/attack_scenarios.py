"""The audit's scenarios of disruption, by fake users and by a dishonest shuffler."""

from functools import partial
from typing import Final

from deploy.audit.attacks import dishonest_shuffler_runs as runs
from deploy.audit.attacks import poisoning
from deploy.audit.attacks.detection_rates import keeping_the_order
from deploy.audit.harness.dishonest_shuffler import (
    DishonestShuffler,
    Users,
    drops,
    replaces,
)
from deploy.audit.scenario import Scenario

_TWICE: Final = "The analyzer counts every report of a fake user twice."
_INATTENTIVE: Final = "No device checks for its answer, and the analyzer knows no sentinel."
_NO_ERRORS: Final = "The analyzer reports no error when it refuses a batch."


def _loses_a_user(shuffler: DishonestShuffler, users: Users) -> tuple[Users, bool]:
    return drops(0)(shuffler, users)


_replacing = partial(runs.losing, scenario="shuffler-replaces", word="replaced", lose=replaces)

ATTACKS: Final[tuple[Scenario, ...]] = (
    Scenario(
        name="input-manipulation",
        title="Fake users who answer honestly for values they do not hold",
        run=poisoning.input_manipulation,
        weakness=_TWICE,
        run_broken=partial(poisoning.input_manipulation, counted_twice=True),
    ),
    Scenario(
        name="random-reports",
        title="Fake users who send random reports",
        run=poisoning.random_reports,
        weakness=_TWICE,
        run_broken=partial(poisoning.random_reports, counted_twice=True),
    ),
    Scenario(
        name="maximal-gain",
        title="Fake users who craft their own reports",
        run=poisoning.maximal_gain,
        weakness="The formula understates the weight of a crafted report by a tenth.",
        run_broken=partial(poisoning.maximal_gain, factor=0.9),
    ),
    Scenario(
        name="dummy-abuse",
        title="Fake users who craft their dummies too",
        run=poisoning.dummy_abuse,
        weakness="The formula leaves out one report of each submission.",
        run_broken=partial(poisoning.dummy_abuse, uncounted=1),
    ),
    Scenario(
        name="message-flood",
        title="Fake users who send many more reports than the task allows",
        run=poisoning.message_flood,
        weakness="The shuffler does not count the reports of a submission.",
        run_broken=partial(poisoning.message_flood, parse=poisoning.unchecked_parse),
    ),
    Scenario(
        name="honest-shuffler",
        title="An honest shuffler, which nobody accuses",
        run=runs.honest,
        weakness="The shuffler drops one submission.",
        run_broken=partial(runs.honest, tampering=_loses_a_user),
    ),
    Scenario(
        name="shuffler-drops",
        title="A shuffler that drops submissions",
        run=runs.losing,
        weakness=_INATTENTIVE,
        run_broken=partial(runs.losing, attentive=False),
    ),
    Scenario(
        name="shuffler-replaces",
        title="A shuffler that puts its own reports in their place",
        run=_replacing,
        weakness=_INATTENTIVE,
        run_broken=partial(_replacing, attentive=False),
    ),
    Scenario(
        name="shuffler-duplicates",
        title="A shuffler that delivers submissions twice",
        run=runs.duplicating,
        weakness="The analyzer tolerates copies, and does not report them.",
        run_broken=partial(runs.duplicating, tolerant=True),
    ),
    Scenario(
        name="shuffler-keeps-order",
        title="A shuffler that does not shuffle",
        run=keeping_the_order,
        weakness="The analyzer knows no sentinel.",
        run_broken=partial(keeping_the_order, planted=False),
    ),
    Scenario(
        name="shuffler-replays",
        title="A shuffler that delivers a batch again",
        run=runs.replaying,
        weakness=_NO_ERRORS,
        run_broken=partial(runs.replaying, delivering=runs.deliver_without_errors),
    ),
    Scenario(
        name="shuffler-injects",
        title="A shuffler that makes users up",
        run=runs.injecting,
        weakness=_NO_ERRORS,
        run_broken=partial(runs.injecting, delivering=runs.deliver_without_errors),
    ),
    Scenario(
        name="shuffler-closes-early",
        title="A shuffler that closes a batch too early",
        run=runs.closing_early,
        weakness=_NO_ERRORS,
        run_broken=partial(runs.closing_early, delivering=runs.deliver_without_errors),
    ),
)
