"""All scenarios, in report order."""

from functools import partial
from typing import Final

from audit import weaknesses
from audit.attacks import detection_rates, poisoning, shuffler_runs
from audit.coalitions import flood, one_of_two, other_designs, single_user, whole_batch
from audit.observation.party_views import observe_services
from audit.sampling import devices, orders, randomizer
from audit.scenario import EVERY_KIND, Scenario
from common.task.kinds import ITEM_KINDS

_for_two = partial(Scenario, kinds=EVERY_KIND, shufflers=(2,))
_WEAK_OF_TWO: Final = {
    "first-shuffler-repeats": weaknesses.RepeatsKept(),
    "first-shuffler-delivers-again": weaknesses.SetBack(),
    "second-shuffler-delivers": weaknesses.OrderKept(),
    "second-shuffler-retries": weaknesses.SetBack(),
}
"""Weaknesses of behaviours of a dishonest one of two shufflers; for the others, no noise."""
SCENARIOS: Final[tuple[Scenario, ...]] = (
    Scenario(
        name="shuffler+analyzer",
        title="The shuffler and analyzer pool what they saw",
        check=single_user.run_pooled,
        weakness=weaknesses.Understated(),
        kinds=EVERY_KIND,
    ),
    Scenario(
        name="colluders",
        title="The analyzer, alone and with colluding users",
        check=whole_batch.run_colluders,
        weakness=weaknesses.ColludersCounted(),
    ),
    Scenario(
        name="skippers",
        title="Users do not add their dummies",
        check=whole_batch.run_skippers,
        weakness=weaknesses.SkippersCounted(),
    ),
    Scenario(
        name="n-1",
        title="The shuffler replaces all reports but one user's",
        check=single_user.run_n_minus_one,
        weakness=weaknesses.ReportLost(),
        shufflers=(1,),
    ),
    Scenario(
        name="flood",
        title="One attacker fills the batch around one person",
        check=flood.run_flood,
        weakness=weaknesses.NotBlinded(),
        kinds=EVERY_KIND,
    ),
    Scenario(
        name="rounds",
        title="The same users answer again",
        check=whole_batch.run_rounds,
        weakness=weaknesses.RoundsNotCounted(),
    ),
    Scenario(
        name="partition",
        title="The analyzer splits its users into groups",
        check=whole_batch.run_partition,
        weakness=weaknesses.DigestWithoutNMin(),
        kinds=EVERY_KIND,
    ),
    Scenario(
        name="linking",
        title="Seeds link no two messages",
        check=single_user.run_linking,
        weakness=weaknesses.SameSeed(),
    ),
    Scenario(
        name="reused-seeds",
        title="Dummies reuse their user's seed, as in OD-HP's paper",
        check=other_designs.run_printed,
        weakness=weaknesses.NoiseAlone(),
        kinds=EVERY_KIND,
    ),
    Scenario(
        name="puredump",
        title="pureDUMP against the shuffler and analyzer together",
        check=other_designs.run_pure_dump,
        weakness=weaknesses.NoiseAlone(),
        kinds=EVERY_KIND,
    ),
    Scenario(
        name="shuffler-dummies",
        title="The shuffler knows the dummies that it made",
        check=other_designs.run_shuffler_dummies,
        weakness=weaknesses.NoiseAlone(),
        kinds=EVERY_KIND,
    ),
    Scenario(
        name="orders",
        title="Every order of a batch is equally likely",
        check=orders.run_orders,
        weakness=weaknesses.CutOnce(),
        kinds=EVERY_KIND,
    ),
    Scenario(
        name="randomizer",
        title="Reports and dummies have the task's distributions",
        check=randomizer.run_randomizer,
        weakness=weaknesses.WrongValues(),
        kinds=EVERY_KIND,
    ),
    Scenario(
        name="draws",
        title="Numbers of dummies have the task's distributions",
        check=devices.run_draws,
        weakness=weaknesses.DummyLeftOut(),
        kinds=EVERY_KIND,
    ),
    Scenario(
        name="devices",
        title="Contents of the submissions that devices seal",
        check=devices.run_devices,
        weakness=weaknesses.SeedReused(),
    ),
    Scenario(
        name="services",
        title="Data that each party of the running services received, stored and logged",
        check=observe_services,
        weakness=weaknesses.OrderKept(),
        shufflers=(1,),
    ),
    Scenario(
        name="input-manipulation",
        title="Fake users who answer honestly for values they do not hold",
        check=poisoning.Poisoning(
            first=poisoning.answer,
            refused=True,
            sentence="Users who only lie about their value raise the items they name by no more "
            "than their share of all users, on average.",
        ),
        weakness=weaknesses.CountedTwice(),
    ),
    Scenario(
        name="random-reports",
        title="Fake users who send random reports",
        check=poisoning.Poisoning(
            first=poisoning.random_report,
            sentence="Users who send random reports distort the estimate as calculated; nothing "
            "distinguishes them from other users.",
        ),
        weakness=weaknesses.CountedTwice(),
    ),
    Scenario(
        name="maximal-gain",
        title="Fake users who craft their reports",
        check=poisoning.Poisoning(
            sentence="A report crafted for chosen items counts as much as {answers} for all of "
            "them together; nothing distinguishes it from other reports.",
        ),
        weakness=weaknesses.CountedTwice(),
        kinds=(*ITEM_KINDS, "open", "table"),
    ),
    Scenario(
        name="dummy-abuse",
        title="Fake users who craft their dummies too",
        check=poisoning.Poisoning(
            submissions=1,
            row_title="Fake users who craft all {number} reports of a submission",
            sentence="A user who crafts every report of a submission counts as much as {answers} "
            "for the chosen items; the number of reports in a submission bounds the attack.",
        ),
        weakness=weaknesses.CountedTwice(),
        kinds=(*ITEM_KINDS, "mean", "vector", "table"),
    ),
    Scenario(
        name="negative-reports",
        title="Fake users who send nothing but negative reports",
        check=poisoning.Poisoning(
            submissions=1,
            negative=True,
            row_title="Fake users who send {number} negative reports of one item",
            sentence="A user who fills a submission with negative reports of one item counts as "
            "much as {answers} for it: each negative report takes the negative weight away.",
        ),
        weakness=weaknesses.CountedTwice(),
    ),
    Scenario(
        name="message-flood",
        title="Fake users who send many more reports than the task allows",
        check=poisoning.Poisoning(
            submissions=poisoning.FLOOD_FACTOR,
            refused=True,
            row_title="Fake users who send {number} crafted reports, if their number were not "
            "checked",
            sentence="If the number of reports in a submission were not checked, the gain would "
            "grow in proportion; the shuffler refuses every wrong number.",
        ),
        weakness=weaknesses.AnyLength(),
        kinds=(*ITEM_KINDS, "table"),
    ),
    Scenario(
        name="honest-shuffler",
        title="An honest shuffler raises no alarm",
        check=partial(shuffler_runs.run_attack, shuffler_runs.honest),
        weakness=weaknesses.UserDropped(),
        shufflers=(1,),
    ),
    Scenario(
        name="shuffler-drops",
        title="A shuffler that drops submissions",
        check=partial(shuffler_runs.run_losing, loss="dropped"),
        weakness=weaknesses.NoDetection(),
        shufflers=(1,),
    ),
    Scenario(
        name="shuffler-replaces",
        title="A shuffler that replaces submissions with its own reports",
        check=partial(shuffler_runs.run_losing, loss="replaced"),
        weakness=weaknesses.NoDetection(),
        shufflers=(1,),
    ),
    Scenario(
        name="shuffler-duplicates",
        title="A shuffler that delivers copies of submissions",
        check=partial(shuffler_runs.run_attack, shuffler_runs.duplicating),
        weakness=weaknesses.CopiesAccepted(),
        shufflers=(1,),
    ),
    Scenario(
        name="shuffler-keeps-order",
        title="A shuffler that does not shuffle",
        check=detection_rates.run_kept_order,
        weakness=weaknesses.NoDetection(),
    ),
    Scenario(
        name="shuffler-replays",
        title="A shuffler that delivers a batch again",
        check=partial(shuffler_runs.run_attack, shuffler_runs.replaying),
        weakness=weaknesses.NoRefusal(),
        shufflers=(1,),
    ),
    Scenario(
        name="shuffler-injects",
        title="A shuffler that adds or omits reports, or invents users",
        check=partial(shuffler_runs.run_attack, shuffler_runs.injecting),
        weakness=weaknesses.NoRefusal(),
        shufflers=(1,),
    ),
    Scenario(
        name="shuffler-closes-early",
        title="A shuffler that closes a batch too early",
        check=partial(shuffler_runs.run_attack, shuffler_runs.closing_early),
        weakness=weaknesses.NoRefusal(),
        shufflers=(1,),
    ),
    *(
        _for_two(
            name=name,
            title=behaviour.title,
            check=partial(one_of_two.attack, name),
            weakness=_WEAK_OF_TWO.get(name, weaknesses.PermutesOnly()),
        )
        for name, behaviour in one_of_two.BEHAVIOURS.items()
    ),
    _for_two(
        name="first-shuffler-forges-tree",
        title="The first shuffler shows devices a tree of 2^40 leaves",
        check=one_of_two.run_forged_tree,
        weakness=weaknesses.UnboundedTree(),
    ),
    _for_two(
        name="permuting-shufflers",
        title="Two shufflers that only permute hide nobody from one of them",
        check=one_of_two.run_permuting,
        weakness=weaknesses.NoiseAfterAll(),
    ),
)
