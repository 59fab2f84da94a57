"""What the audit plays of disruption: by users who are not honest, and by a shuffler."""

from typing import Final

from deploy.audit.integrity import (
    budgets,
    deliveries,
    held_back,
    intake_rules,
    ledger_rules,
    lost_reports,
    poisoning,
)
from deploy.audit.integrity.bulk_clients import bulk_clients
from deploy.audit.integrity.dishonest_clients import dishonest_clients
from deploy.audit.integrity.restarts import restarts
from deploy.audit.integrity.thresholds import thresholds
from deploy.audit.scenario import EVERY_KIND, Scenario

SCENARIOS: Final[tuple[Scenario, ...]] = (
    Scenario(
        name="input-manipulation",
        title="Fake users who answer honestly for values they do not hold",
        play=poisoning.input_manipulation,
    ),
    Scenario(
        name="random-reports",
        title="Fake users who send random reports",
        play=poisoning.random_reports,
    ),
    Scenario(
        name="maximal-gain",
        title="Fake users who craft their own reports",
        play=poisoning.maximal_gain,
    ),
    Scenario(
        name="dummy-abuse",
        title="Fake users who craft their dummies too",
        play=poisoning.dummy_abuse,
    ),
    Scenario(
        name="message-flood",
        title="Fake users who send many more reports, if nobody counted them",
        play=poisoning.message_flood,
    ),
    Scenario(
        name="dishonest-clients",
        title="Submissions that no device would send",
        play=dishonest_clients,
    ),
    Scenario(
        name="honest-shuffler",
        title="An honest shuffler, which nobody accuses",
        play=deliveries.honest,
    ),
    Scenario(
        name="shuffler-drops",
        title="A shuffler that drops submissions",
        play=lost_reports.dropping,
    ),
    Scenario(
        name="shuffler-replaces",
        title="A shuffler that puts its own reports in their place",
        play=lost_reports.replacing,
    ),
    Scenario(
        name="shuffler-duplicates",
        title="A shuffler that delivers submissions twice",
        play=lost_reports.duplicating,
    ),
    Scenario(
        name="shuffler-keeps-order",
        title="A shuffler that does not shuffle",
        play=deliveries.keeping_the_order,
    ),
    Scenario(
        name="shuffler-replays",
        title="A shuffler that delivers a batch again",
        play=deliveries.replaying,
    ),
    Scenario(
        name="shuffler-injects",
        title="A shuffler that makes users up",
        play=deliveries.injecting,
    ),
    Scenario(
        name="bulk-clients",
        title="Many submissions in one call",
        play=bulk_clients,
        kinds=EVERY_KIND,
    ),
    Scenario(
        name="thresholds",
        title="Batches just short of enough, and submissions just too late",
        play=thresholds,
        kinds=EVERY_KIND,
    ),
    Scenario(
        name="restarts",
        title="A shuffler that is started again",
        play=restarts,
        kinds=EVERY_KIND,
    ),
    Scenario(
        name="analyzer-budgets",
        title="Several releases to the same people",
        seconds=2,
        play=budgets.budgets,
        kinds=EVERY_KIND,
    ),
    Scenario(
        name="analyzer-ledger",
        title="A charge that cannot be written, and one that was altered",
        play=ledger_rules.ledger_rules,
        kinds=EVERY_KIND,
    ),
    Scenario(
        name="analyzer-intake",
        title="What the analyzer counts, refuses and keeps",
        seconds=2,
        play=intake_rules.intake_rules,
        kinds=EVERY_KIND,
    ),
    Scenario(
        name="analyzer-releases",
        title="What the analyzer holds back, and what a result says of what was refused",
        play=held_back.held_back,
        kinds=EVERY_KIND,
    ),
)
