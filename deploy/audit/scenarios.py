"""Every scenario, in the order of a report."""

from typing import Final

from deploy.audit.attacks import poisoning, shuffler_runs
from deploy.audit.attacks.detection_rates import keeping_the_order
from deploy.audit.coalitions.linkage import run_linking, run_partition, without_n_min
from deploy.audit.coalitions.other_designs import run_printed, run_pure_dump, run_shuffler_dummies
from deploy.audit.coalitions.single_user import permute_and_lose, run_n_minus_one, run_pooled
from deploy.audit.coalitions.whole_batch import run_colluders, run_rounds, run_skippers
from deploy.audit.distributions.value_reports import draw_for_others
from deploy.audit.harness.dishonest_shuffler import drops
from deploy.audit.observation.party_views import observe_services
from deploy.audit.sampling.devices import run_devices, run_draws, seeded_alike
from deploy.audit.sampling.orders import CUT, run_orders
from deploy.audit.sampling.randomizer import run_randomizer
from deploy.audit.scenario import EVERY_KIND, Scenario

_TWICE: Final = "The analyzer counts every report of a fake user twice."
_UNDERSTATED: Final = "The formula understates the weight of a crafted report by a tenth."
_INATTENTIVE: Final = "No device checks for its answer, and the analyzer knows no sentinel."
_NO_ERRORS: Final = "The analyzer reports no error when it refuses a batch."

COALITIONS: Final = (
    Scenario(
        name="shuffler+analyzer",
        title="Shuffler and analyzer pool what they saw",
        run=run_pooled,
        weakness="The task states a quarter of its local epsilon, 5 at most.",
        broken={"understate": True},
        kinds=EVERY_KIND,
    ),
    Scenario(
        name="colluders",
        title="The analyzer, alone and with colluding users",
        run=run_colluders,
        weakness="The claims count colluding users as honest.",
        broken={"trusting": True},
    ),
    Scenario(
        name="skippers",
        title="Users do not add their dummies",
        run=run_skippers,
        weakness="The claims count dummies that users skip, and users who collude.",
        broken={"believed": True},
    ),
    Scenario(
        name="n-1",
        title="The shuffler replaces all reports but one user's",
        run=run_n_minus_one,
        weakness="The shuffler loses a report of each batch.",
        broken={"permuted": permute_and_lose},
    ),
    Scenario(
        name="rounds",
        title="The same users are asked again",
        run=run_rounds,
        weakness="The claims count one round, however many there were.",
        broken={"forgetful": True},
    ),
    Scenario(
        name="partition",
        title="The analyzer splits its users into groups",
        run=run_partition,
        weakness="The task's digest leaves n_min out.",
        broken={"encode": without_n_min},
        kinds=EVERY_KIND,
    ),
    Scenario(
        name="linking",
        title="Messages are linked by their seeds",
        run=run_linking,
        weakness="Devices keep their seed for the second round.",
        broken={"kept": True},
    ),
    Scenario(
        name="reused-seeds",
        title="Dummies reuse their user's seed, as OD-HP is printed",
        run=run_printed,
        weakness="The dummies have fresh seeds, so that the printed theorem is not refuted.",
        broken={"fresh": True},
        kinds=EVERY_KIND,
    ),
    Scenario(
        name="puredump",
        title="pureDUMP against shuffler and analyzer together",
        run=run_pure_dump,
        weakness="Reports carry noise, so that the attack does not read them.",
        broken={"noisy": True},
        kinds=EVERY_KIND,
    ),
    Scenario(
        name="shuffler-dummies",
        title="The shuffler knows the dummies that it made",
        run=run_shuffler_dummies,
        weakness="Users add more noise than the design says, so that the attack gains less.",
        broken={"noisy": True},
        kinds=EVERY_KIND,
    ),
)
SAMPLING: Final = (
    Scenario(
        name="orders",
        title="Every order of a batch is equally likely",
        run=run_orders,
        weakness="The shuffler cuts the batch once instead of shuffling it.",
        broken={"orderings": CUT},
        kinds=EVERY_KIND,
    ),
    Scenario(
        name="randomizer",
        title="The task's randomizer has its distribution",
        run=run_randomizer,
        weakness="One device in five answers with another value than its user's.",
        broken={"draw": draw_for_others},
        kinds=EVERY_KIND,
    ),
    Scenario(
        name="draws",
        title="Numbers of dummies have their distributions",
        run=run_draws,
        weakness="Devices and the shuffler leave out one of the dummies that they drew.",
        broken={"left_out": 1},
        kinds=EVERY_KIND,
    ),
    Scenario(
        name="devices",
        title="Submissions as devices seal them",
        run=run_devices,
        weakness="Devices start their generator from the same seed each time.",
        broken={"source": seeded_alike},
    ),
)
OBSERVATION: Final = Scenario(
    name="services",
    title="The three services as they run: what each party received, kept and logged",
    run=observe_services,
    weakness="The shuffler delivers reports in the order of arrival.",
    broken={"by_arrival": True},
)
ATTACKS: Final = (
    Scenario(
        name="input-manipulation",
        title="Fake users who answer honestly for values they do not hold",
        run=poisoning.input_manipulation,
        weakness=_TWICE,
        broken={"counted_twice": True},
    ),
    Scenario(
        name="random-reports",
        title="Fake users who send random reports",
        run=poisoning.random_reports,
        weakness=_TWICE,
        broken={"counted_twice": True},
    ),
    Scenario(
        name="maximal-gain",
        title="Fake users who craft their own reports",
        run=poisoning.maximal_gain,
        weakness=_UNDERSTATED,
        broken={"factor": 0.9},
    ),
    Scenario(
        name="dummy-abuse",
        title="Fake users who craft their dummies too",
        run=poisoning.dummy_abuse,
        weakness=_UNDERSTATED,
        broken={"factor": 0.9},
    ),
    Scenario(
        name="message-flood",
        title="Fake users who send many more reports than the task allows",
        run=poisoning.message_flood,
        weakness="The shuffler does not count the reports of a submission.",
        broken={"parse": poisoning.unchecked_parse},
    ),
    Scenario(
        name="honest-shuffler",
        title="An honest shuffler, which nobody accuses",
        run=shuffler_runs.honest,
        weakness="The shuffler drops one submission.",
        broken={"tampering": drops(0)},
    ),
    Scenario(
        name="shuffler-drops",
        title="A shuffler that drops submissions",
        run=shuffler_runs.dropping,
        weakness=_INATTENTIVE,
        broken={"attentive": False},
    ),
    Scenario(
        name="shuffler-replaces",
        title="A shuffler that puts its own reports in their place",
        run=shuffler_runs.replacing,
        weakness=_INATTENTIVE,
        broken={"attentive": False},
    ),
    Scenario(
        name="shuffler-duplicates",
        title="A shuffler that delivers submissions twice",
        run=shuffler_runs.duplicating,
        weakness="The analyzer tolerates copies, and does not report them.",
        broken={"tolerant": True},
    ),
    Scenario(
        name="shuffler-keeps-order",
        title="A shuffler that does not shuffle",
        run=keeping_the_order,
        weakness="The analyzer knows no sentinel.",
        broken={"planted": False},
    ),
    Scenario(
        name="shuffler-replays",
        title="A shuffler that delivers a batch again",
        run=shuffler_runs.replaying,
        weakness=_NO_ERRORS,
        broken={"delivering": shuffler_runs.deliver_without_errors},
    ),
    Scenario(
        name="shuffler-injects",
        title="A shuffler that makes users up",
        run=shuffler_runs.injecting,
        weakness=_NO_ERRORS,
        broken={"delivering": shuffler_runs.deliver_without_errors},
    ),
    Scenario(
        name="shuffler-closes-early",
        title="A shuffler that closes a batch too early",
        run=shuffler_runs.closing_early,
        weakness=_NO_ERRORS,
        broken={"delivering": shuffler_runs.deliver_without_errors},
    ),
)

SCENARIOS: Final[tuple[Scenario, ...]] = (*COALITIONS, *SAMPLING, OBSERVATION, *ATTACKS)
