"""Every scenario, in the order of a report."""

from functools import partial
from typing import Final

from deploy.audit.attacks.attack_scenarios import ATTACKS
from deploy.audit.coalitions.alone import permute_and_lose, run_n_minus_one, run_skippers
from deploy.audit.coalitions.colluders import run_colluders
from deploy.audit.coalitions.linking import run_linking
from deploy.audit.coalitions.other_designs import run_pure_dump, run_shuffler_dummies
from deploy.audit.coalitions.partition import run_partition, without_n_min
from deploy.audit.coalitions.pooled import run_pooled
from deploy.audit.coalitions.printed import run_printed
from deploy.audit.coalitions.rounds import run_rounds
from deploy.audit.observation.observation_scenarios import OBSERVATION
from deploy.audit.report_draws import draw_for_others
from deploy.audit.sampling.devices import run_devices, seeded_alike
from deploy.audit.sampling.dummies import SAVING, run_draws
from deploy.audit.sampling.orders import CUT, run_orders
from deploy.audit.sampling.randomizer import run_randomizer
from deploy.audit.scenario import EVERY_KIND, Scenario

_COALITIONS: Final = (
    Scenario(
        name="shuffler+analyzer",
        title="Shuffler and analyzer pool what they saw",
        run=run_pooled,
        weakness="The task states a quarter of its local epsilon, 5 at most.",
        run_broken=partial(run_pooled, understate=True),
        seconds=4,
        kinds=EVERY_KIND,
    ),
    Scenario(
        name="colluders",
        title="The analyzer, alone and with colluding users",
        run=run_colluders,
        weakness="The claims count colluding users as honest.",
        run_broken=partial(run_colluders, trusting=True),
        seconds=10,
    ),
    Scenario(
        name="skippers",
        title="Users do not add their dummies",
        run=run_skippers,
        weakness="The claims count dummies that users skip, and users who collude.",
        run_broken=partial(run_skippers, believed=True),
        seconds=5,
    ),
    Scenario(
        name="n-1",
        title="The shuffler replaces all reports but one user's",
        run=run_n_minus_one,
        weakness="The shuffler loses a report of each batch.",
        run_broken=partial(run_n_minus_one, permuted=permute_and_lose),
        seconds=1.5,
    ),
    Scenario(
        name="rounds",
        title="The same users are asked again",
        run=run_rounds,
        weakness="The claims count one round, however many there were.",
        run_broken=partial(run_rounds, forgetful=True),
        seconds=4,
    ),
    Scenario(
        name="partition",
        title="The analyzer splits its users into groups",
        run=run_partition,
        weakness="The task's digest leaves n_min out.",
        run_broken=partial(run_partition, encode=without_n_min),
        seconds=2,
        kinds=EVERY_KIND,
    ),
    Scenario(
        name="linking",
        title="Messages are linked by their seeds",
        run=run_linking,
        weakness="Devices keep their seed for the second round.",
        run_broken=partial(run_linking, kept=True),
    ),
    Scenario(
        name="reused-seeds",
        title="Dummies reuse their user's seed, as OD-HP is printed",
        run=run_printed,
        weakness="The dummies have fresh seeds, so that the printed theorem is not refuted.",
        run_broken=partial(run_printed, fresh=True),
        seconds=3,
        kinds=EVERY_KIND,
    ),
    Scenario(
        name="puredump",
        title="pureDUMP against shuffler and analyzer together",
        run=run_pure_dump,
        weakness="Reports carry noise, so that the attack does not read them.",
        run_broken=partial(run_pure_dump, noisy=True),
        seconds=1.5,
        kinds=EVERY_KIND,
    ),
    Scenario(
        name="shuffler-dummies",
        title="The shuffler knows the dummies that it made",
        run=run_shuffler_dummies,
        weakness="Users add more noise than the design says, so that the attack gains less.",
        run_broken=partial(run_shuffler_dummies, noisy=True),
        seconds=1.5,
        kinds=EVERY_KIND,
    ),
)
_SAMPLING: Final = (
    Scenario(
        name="orders",
        title="Every order of a batch is equally likely",
        run=run_orders,
        weakness="The shuffler cuts the batch once instead of shuffling it.",
        run_broken=partial(run_orders, orderings=CUT),
        seconds=5,
        kinds=EVERY_KIND,
    ),
    Scenario(
        name="randomizer",
        title="The task's randomizer has its distribution",
        run=run_randomizer,
        weakness="One device in five answers with another value than its user's.",
        run_broken=partial(run_randomizer, draw=draw_for_others),
        seconds=2,
        kinds=EVERY_KIND,
    ),
    Scenario(
        name="draws",
        title="Numbers of dummies have their distributions",
        run=run_draws,
        weakness="Devices and the shuffler leave out one of the dummies that they drew.",
        run_broken=partial(run_draws, draws=SAVING),
        seconds=2,
        kinds=EVERY_KIND,
    ),
    Scenario(
        name="devices",
        title="Submissions as devices seal them",
        run=run_devices,
        weakness="Devices start their generator from the same seed each time.",
        run_broken=partial(run_devices, source=seeded_alike),
        seconds=5,
    ),
)

SCENARIOS: Final[tuple[Scenario, ...]] = (*_COALITIONS, *_SAMPLING, *OBSERVATION, *ATTACKS)
