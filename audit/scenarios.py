"""All scenarios, in report order."""

from functools import partial
from typing import Final

from shuffledp.audit import weaknesses
from shuffledp.audit.attacks import poisoning, shuffler_runs
from shuffledp.audit.coalitions import flood, one_of_two, single_user, whole_batch
from shuffledp.audit.observation.party_views import observe_services
from shuffledp.audit.sampling import devices, draws
from shuffledp.audit.scenario import EVERY_KIND, Scenario
from shuffledp.common.task.kinds import ITEM_KINDS

_for_all = partial(Scenario, kinds=EVERY_KIND)
_for_one = partial(Scenario, shufflers=(1,))
_for_two = partial(Scenario, kinds=EVERY_KIND, shufflers=(2,))
_with_fakes = partial(Scenario, weakness=weaknesses.COUNTED_TWICE)
_WEAK_OF_TWO: Final = {
    "first-shuffler-repeats": weaknesses.REPEATS_KEPT,
    "first-shuffler-delivers-again": weaknesses.SET_BACK,
    "second-shuffler-delivers": weaknesses.ORDER_KEPT,
    "second-shuffler-retries": weaknesses.SET_BACK,
}
"""Weaknesses of behaviours of a dishonest one of two shufflers; for the others, no noise."""
SCENARIOS: Final[tuple[Scenario, ...]] = (
    _for_all(
        name="shuffler+analyzer",
        title="The shuffler and analyzer pool what they saw",
        check=single_user.run_pooled,
        weakness=weaknesses.UNDERSTATED,
    ),
    Scenario(
        name="colluders",
        title="The analyzer, alone and with colluding users",
        check=whole_batch.run_colluders,
        weakness=weaknesses.COLLUDERS_COUNTED,
    ),
    Scenario(
        name="skippers",
        title="Users do not add their dummies",
        check=whole_batch.run_skippers,
        weakness=weaknesses.SKIPPERS_COUNTED,
    ),
    _for_one(
        name="n-1",
        title="The shuffler replaces all reports but one user's",
        check=single_user.run_n_minus_one,
        weakness=weaknesses.REPORT_LOST,
    ),
    _for_all(
        name="flood",
        title="One attacker fills the batch around one person",
        check=flood.run_flood,
        weakness=weaknesses.NOT_BLINDED,
    ),
    Scenario(
        name="rounds",
        title="The same users answer again",
        check=whole_batch.run_rounds,
        weakness=weaknesses.ROUNDS_NOT_COUNTED,
    ),
    _for_all(
        name="partition",
        title="The analyzer splits its users into groups",
        check=whole_batch.run_partition,
        weakness=weaknesses.DIGEST_WITHOUT_N_MIN,
    ),
    Scenario(
        name="linking",
        title="Seeds link no two messages",
        check=single_user.run_linking,
        weakness=weaknesses.SAME_SEED,
    ),
    _for_all(
        name="reused-seeds",
        title="Dummies reuse their user's seed, as in OD-HP's paper",
        check=single_user.run_printed,
        weakness=weaknesses.NOISE_ALONE,
    ),
    _for_all(
        name="puredump",
        title="pureDUMP against the shuffler and analyzer together",
        check=single_user.run_pure_dump,
        weakness=weaknesses.NOISE_ALONE,
    ),
    _for_all(
        name="shuffler-dummies",
        title="The shuffler knows the dummies that it made",
        check=single_user.run_shuffler_dummies,
        weakness=weaknesses.NOISE_ALONE,
    ),
    _for_all(
        name="orders",
        title="Every order of a batch is equally likely",
        check=draws.run_orders,
        weakness=weaknesses.CUT_ONCE,
    ),
    _for_all(
        name="randomizer",
        title="Reports and dummies have the task's distributions",
        check=draws.run_randomizer,
        weakness=weaknesses.WRONG_VALUES,
    ),
    _for_all(
        name="draws",
        title="Numbers of dummies have the task's distributions",
        check=devices.run_draws,
        weakness=weaknesses.DUMMY_LEFT_OUT,
    ),
    Scenario(
        name="devices",
        title="Contents of the submissions that devices seal",
        check=devices.run_devices,
        weakness=weaknesses.SEED_REUSED,
    ),
    _for_one(
        name="services",
        title="Data that each party of the running services received, stored and logged",
        check=observe_services,
        weakness=weaknesses.ORDER_KEPT,
    ),
    _with_fakes(
        name="input-manipulation",
        title="Fake users who answer honestly for values they do not hold",
        check=poisoning.Poisoning(
            first=poisoning.answer,
            refused=True,
            sentence="Users who only lie about their value raise the items they name by no more "
            "than their share of all users, on average.",
        ),
    ),
    _with_fakes(
        name="random-reports",
        title="Fake users who send random reports",
        check=poisoning.Poisoning(
            first=poisoning.random_report,
            sentence="Users who send random reports distort the estimate as calculated; nothing "
            "distinguishes them from other users.",
        ),
    ),
    _with_fakes(
        name="maximal-gain",
        title="Fake users who craft their reports",
        check=poisoning.Poisoning(
            sentence="A report crafted for chosen items counts as much as {answers} for all of "
            "them together; nothing distinguishes it from other reports."
        ),
        kinds=(*ITEM_KINDS, "open", "table"),
    ),
    _with_fakes(
        name="dummy-abuse",
        title="Fake users who craft their dummies too",
        check=poisoning.Poisoning(
            submissions=1,
            row_title="Fake users who craft all {number} reports of a submission",
            sentence="A user who crafts every report of a submission counts as much as {answers} "
            "for the chosen items; the number of reports in a submission bounds the attack.",
        ),
        kinds=(*ITEM_KINDS, "mean", "vector", "table"),
    ),
    _with_fakes(
        name="negative-reports",
        title="Fake users who send nothing but negative reports",
        check=poisoning.Poisoning(
            submissions=1,
            negative=True,
            row_title="Fake users who send {number} negative reports of one item",
            sentence="A user who fills a submission with negative reports of one item counts as "
            "much as {answers} for it: each negative report takes the negative weight away.",
        ),
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
        weakness=weaknesses.ANY_LENGTH,
        kinds=(*ITEM_KINDS, "table"),
    ),
    _for_one(
        name="honest-shuffler",
        title="An honest shuffler raises no alarm",
        check=partial(shuffler_runs.run_attack, shuffler_runs.honest),
        weakness=weaknesses.USER_DROPPED,
    ),
    _for_one(
        name="shuffler-drops",
        title="A shuffler that drops submissions",
        check=partial(shuffler_runs.run_losing, loss="dropped"),
        weakness=weaknesses.NO_DETECTION,
    ),
    _for_one(
        name="shuffler-replaces",
        title="A shuffler that replaces submissions with its own reports",
        check=partial(shuffler_runs.run_losing, loss="replaced"),
        weakness=weaknesses.NO_DETECTION,
    ),
    _for_one(
        name="shuffler-duplicates",
        title="A shuffler that delivers copies of submissions",
        check=partial(shuffler_runs.run_attack, shuffler_runs.duplicating),
        weakness=weaknesses.COPIES_ACCEPTED,
    ),
    Scenario(
        name="shuffler-keeps-order",
        title="A shuffler that does not shuffle",
        check=shuffler_runs.run_kept_order,
        weakness=weaknesses.NO_DETECTION,
    ),
    _for_one(
        name="shuffler-replays",
        title="A shuffler that delivers a batch again",
        check=partial(shuffler_runs.run_attack, shuffler_runs.replaying),
        weakness=weaknesses.NO_REFUSAL,
    ),
    _for_one(
        name="shuffler-injects",
        title="A shuffler that adds or omits reports, or invents users",
        check=partial(shuffler_runs.run_attack, shuffler_runs.injecting),
        weakness=weaknesses.NO_REFUSAL,
    ),
    _for_one(
        name="shuffler-closes-early",
        title="A shuffler that closes a batch too early",
        check=partial(shuffler_runs.run_attack, shuffler_runs.closing_early),
        weakness=weaknesses.NO_REFUSAL,
    ),
    *(
        _for_two(
            name=name,
            title=behaviour.title,
            check=behaviour.findings,
            weakness=_WEAK_OF_TWO.get(name, weaknesses.PERMUTES_ONLY),
        )
        for name, behaviour in one_of_two.BEHAVIOURS.items()
    ),
    _for_two(
        name="first-shuffler-forges-tree",
        title="The first shuffler shows devices a tree of 2^40 leaves",
        check=one_of_two.run_forged_tree,
        weakness=weaknesses.UNBOUNDED_TREE,
    ),
    _for_two(
        name="permuting-shufflers",
        title="Two shufflers that only permute hide nobody from one of them",
        check=one_of_two.run_permuting,
        weakness=weaknesses.NOISE_AFTER_ALL,
    ),
)
