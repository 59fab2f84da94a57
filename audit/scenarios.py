"""All scenarios, in report order."""

from typing import Final

from audit.attacks import poisoning, shuffler_runs
from audit.coalitions import flood, other_designs, single_user, whole_batch
from audit.observation.party_views import observe_services
from audit.sampling import devices, orders, randomizer
from audit.scenario import EVERY_KIND, Scenario

SCENARIOS: Final[tuple[Scenario, ...]] = (
    Scenario(
        name="shuffler+analyzer",
        title="The shuffler and analyzer pool what they saw",
        check=single_user.run_pooled,
        weakness="The task states a quarter of its local epsilon, at most 5.",
        kinds=EVERY_KIND,
    ),
    Scenario(
        name="colluders",
        title="The analyzer, alone and with colluding users",
        check=whole_batch.run_colluders,
        weakness="The claims count colluding users as honest.",
    ),
    Scenario(
        name="skippers",
        title="Users do not add their dummies",
        check=whole_batch.run_skippers,
        weakness="The claims count skipped dummies and colluding users.",
    ),
    Scenario(
        name="n-1",
        title="The shuffler replaces all reports but one user's",
        check=single_user.run_n_minus_one,
        weakness="The shuffler loses one report of each batch.",
    ),
    Scenario(
        name="flood",
        title="One attacker fills the batch around one person",
        check=flood.run_flood,
        weakness="Devices do not blind their requests for tokens.",
        kinds=EVERY_KIND,
    ),
    Scenario(
        name="rounds",
        title="The same users answer again",
        check=whole_batch.run_rounds,
        weakness="The claims count one round only.",
    ),
    Scenario(
        name="partition",
        title="The analyzer splits its users into groups",
        check=whole_batch.run_partition,
        weakness="The task's digest does not cover n_min.",
        kinds=EVERY_KIND,
    ),
    Scenario(
        name="linking",
        title="Seeds link no two messages",
        check=single_user.run_linking,
        weakness="Devices reuse their seed in the second round.",
    ),
    Scenario(
        name="reused-seeds",
        title="Dummies reuse their user's seed, as in OD-HP's paper",
        check=other_designs.run_printed,
        weakness="The dummies have fresh seeds, so the attack does not refute the printed theorem.",
        kinds=EVERY_KIND,
    ),
    Scenario(
        name="puredump",
        title="pureDUMP against the shuffler and analyzer together",
        check=other_designs.run_pure_dump,
        weakness="Reports carry noise, so the attack cannot read them.",
        kinds=EVERY_KIND,
    ),
    Scenario(
        name="shuffler-dummies",
        title="The shuffler knows the dummies that it made",
        check=other_designs.run_shuffler_dummies,
        weakness="Users add more noise than the design specifies, so the attack gains less.",
        kinds=EVERY_KIND,
    ),
    Scenario(
        name="orders",
        title="Every order of a batch is equally likely",
        check=orders.run_orders,
        weakness="The shuffler cuts the batch once instead of shuffling it.",
        kinds=EVERY_KIND,
    ),
    Scenario(
        name="randomizer",
        title="Reports and dummies have the task's distributions",
        check=randomizer.run_randomizer,
        weakness="One device in five answers with a value other than its user's.",
        kinds=EVERY_KIND,
    ),
    Scenario(
        name="draws",
        title="Numbers of dummies have the task's distributions",
        check=devices.run_draws,
        weakness="Devices and the shuffler leave out one dummy.",
        kinds=EVERY_KIND,
    ),
    Scenario(
        name="devices",
        title="Contents of the submissions that devices seal",
        check=devices.run_devices,
        weakness="Devices start their generator from the same seed each time.",
    ),
    Scenario(
        name="services",
        title="Data that each party of the running services received, stored and logged",
        check=observe_services,
        weakness="The shuffler delivers reports in arrival order.",
    ),
    *poisoning.SCENARIOS,
    *shuffler_runs.SCENARIOS,
)
