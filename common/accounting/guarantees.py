"""
The guarantees of a task, each against one coalition, with its theorem and assumptions.

Computed by the analyzer for a batch that arrived, by the user agent for a task's claim at n_min,
and by the planner for a task that is only planned. A guarantee costs a search for ε, tenths of a
second, or for several rounds a composition; those of local noise and encryption cost nothing.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Final

from shuffledp.common.accounting import assumptions as stated
from shuffledp.common.accounting.clones import CloneRelease
from shuffledp.common.accounting.cluster_noise import OF_BATCHES, ClusterRelease
from shuffledp.common.accounting.composition import ComposedRelease, composed_epsilon
from shuffledp.common.accounting.hybrid_noise import HybridRelease
from shuffledp.common.accounting.item_noise import ItemNoiseRelease
from shuffledp.common.accounting.privacy_parameters import PrivacyParameters, check_users
from shuffledp.common.accounting.published import PUBLISHED, BoundSetting
from shuffledp.common.accounting.releases import AmplifiedRelease, LocalRelease, Release
from shuffledp.common.accounting.two_items import TwoItemRelease
from shuffledp.common.errors import BoundRangeError
from shuffledp.common.messages import guarantee
from shuffledp.common.messages.guarantee import NONE_WAIVED, Coalition, Guarantee, Waived
from shuffledp.common.task.task import Task, honest_share

_MAX_SHARE_SHOWN: Final = 0.99
"""A guarantee by the user's own dummies is omitted if its ε exceeds this share of the local ε."""


def claimed_release(
    task: Task, n_users: int, n_refused: int = 0, waived: Waived = NONE_WAIVED
) -> Release:
    """Return the release behind a task's claim, as every device can check it."""
    return _claimed(PrivacyParameters.of(task, waived), n_users, n_refused)


def charged_release(
    task: Task, n_users: int, n_refused: int, waived: Waived = NONE_WAIVED
) -> Release:
    """Return the release that a batch costs its population: that of the result's guarantee."""
    return _claimed(PrivacyParameters.of(task, waived, OF_BATCHES), n_users, n_refused)


def _claimed(parameters: PrivacyParameters, n_users: int, n_refused: int) -> Release:
    honest = honest_share(n_users, parameters.assumed_honest_fraction)
    return parameters.release_of(n_users, honest, honest, n_refused)


def guarantees(
    task: Task, n_users: int, n_refused: int, waived: Waived = NONE_WAIVED
) -> tuple[Guarantee, ...]:
    """Return every guarantee of a batch that arrived. Errors and cost: see `guarantees_under`."""
    return guarantees_under(PrivacyParameters.of(task, waived, OF_BATCHES), n_users, n_refused)


def guarantees_under(
    parameters: PrivacyParameters, n_users: int, n_refused: int = 0
) -> tuple[Guarantee, ...]:
    """
    Return every guarantee under these parameters, one for each coalition and theorem.

    Raises AccountingError if n_users is below 1, delta is out of range, or no formula applies.
    Cost: up to five searches for ε, or as many compositions.
    """
    check_users(n_users)
    pooled = _against_shuffler_and_analyzer(parameters)
    if parameters.reduction is None or "sentinels" in parameters.waived.checks:
        found = {row.coalition: row for row in pooled}
        weakest = found["either-shuffler" if parameters.hops else "shuffler+analyzer"]
        rows = [dataclasses.replace(weakest, coalition="analyzer"), *pooled]
    else:
        honest = honest_share(n_users, parameters.assumed_honest_fraction)
        rows = [analyzer_guarantee(parameters, n_users, n_users, n_refused)]
        if honest < n_users:
            rows.append(claimed_guarantee(parameters, n_users, n_refused))
            if parameters.dummies.maximum:
                rows.append(skippers_guarantee(parameters, n_users, honest, n_refused))
        alone = alone_guarantee(parameters, n_users, n_refused)
        rows += [*pooled, alone] if parameters.tokens else [alone, *pooled]
    return (*rows, *_by_encryption(parameters))


def claimed_guarantee(parameters: PrivacyParameters, n_users: int, n_refused: int = 0) -> Guarantee:
    """Return the guarantee that a task claims and is charged for, with the users assumed honest."""
    if parameters.reduction is None:
        check_users(n_users)
        return local_guarantee("analyzer", parameters)
    honest = honest_share(n_users, parameters.assumed_honest_fraction)
    return analyzer_guarantee(parameters, n_users, honest, n_refused)


def analyzer_guarantee(
    parameters: PrivacyParameters, n_users: int, honest: int, n_refused: int = 0
) -> Guarantee:
    """Return the guarantee against the analyzer together with all users but the `honest` ones."""
    users, everybody = max(1, honest - n_refused), honest == n_users
    others = f"the other {n_users - users:,} may misbehave and tell the analyzer everything"
    if everybody:
        others = "nobody else knows which reports are theirs"
    return _amplified(
        "analyzer" if everybody else "analyzer+users",
        parameters,
        parameters.release_of(n_users, honest, honest, n_refused),
        _honest(parameters, users, n_users) + stated.with_dummies(parameters.dummies),
        others,
        stated.ENTITLED if parameters.tokens else stated.SYBILS,
    )


def _honest(parameters: PrivacyParameters, honest: int, n_users: int) -> str:
    """State how many users randomize; with tokens, as many people as tokens were spent."""
    users = "people who each spent a token" if parameters.tokens else "users"
    return f"{honest:,} of the {n_users:,} {users}, you among them, randomize as the task says"


def alone_guarantee(parameters: PrivacyParameters, n_users: int, n_refused: int = 0) -> Guarantee:
    """
    Return the guarantee against the analyzer if all other users are made up.

    Without tokens, anybody can make them up; with tokens, the issuer can. Entitled people who
    collude are counted by `assumed_honest_fraction`.
    """
    coalition: Coalition = "issuer+analyzer" if parameters.tokens else "analyzer+sybils"
    local = local_guarantee(coalition, parameters)
    alone = _amplified(
        coalition,
        parameters,
        parameters.release_of(n_users, 1, 1, n_refused),
        stated.ALONE[0]
        + stated.with_dummies(parameters.dummies).replace(" and add ", " and adds ", 1),
        "nobody else takes part: all other submissions are made up, and the analyzer knows them",
    )
    return alone if _gains(alone, local) else local


def _gains(found: Guarantee, local: Guarantee) -> bool:
    """Return whether an ε is finite and clearly below the local ε."""
    epsilon = found.epsilon
    return math.isfinite(epsilon) and epsilon <= _MAX_SHARE_SHOWN * local.epsilon


def central_epsilon(parameters: PrivacyParameters, release: Release) -> float:
    """Return an upper bound on the ε of all rounds, each like this release, at parameters.delta."""
    releases = [release] * parameters.rounds
    return min(composed_epsilon(releases, parameters.delta), parameters.local_epsilon_of_all_rounds)


_THEOREMS: Final[Mapping[type, tuple[str, str]]] = {
    AmplifiedRelease: (stated.FORMULA_1, stated.COMPOSED[stated.FORMULA_1]),
    CloneRelease: (stated.CLONES, stated.COMPOSED[stated.CLONES]),
    ClusterRelease: (stated.CLUSTERS, stated.COMPOSED[stated.CLUSTERS]),
    HybridRelease: (stated.HYBRID, stated.COMPOSED[stated.HYBRID]),
    ItemNoiseRelease: (stated.ITEM_NOISE, stated.COMPOSED[stated.ITEM_NOISE]),
    TwoItemRelease: (stated.TWO_ITEMS, stated.COMPOSED[stated.TWO_ITEMS]),
}
"""The theorem behind the central ε of one round, and of several."""


def theorem_of(release: Release, rounds: int = 1) -> str:
    """Return the theorem behind the central ε of so many rounds like this release."""
    if isinstance(release, ComposedRelease):
        of_view, _ = _THEOREMS[type(release.releases[0])]
        return stated.of_views(of_view)
    return _THEOREMS[type(release)][rounds > 1]


def _round_assumptions(parameters: PrivacyParameters) -> tuple[str, ...]:
    """Return the assumption of composition; empty for a single round."""
    if parameters.rounds == 1:
        return ()
    return (f"the same users answer {parameters.rounds} such tasks, with as many users in each",)


def skippers_guarantee(
    parameters: PrivacyParameters, n_users: int, adding: int, n_refused: int = 0
) -> Guarantee:
    """Return the guarantee against the analyzer if all are honest and `adding` add dummies."""
    return _amplified(
        "analyzer+skippers",
        parameters,
        parameters.release_of(n_users, n_users, adding, n_refused),
        _honest(parameters, max(1, n_users - n_refused), n_users),
        f"{parameters.still_adding(adding, n_refused):,} of them"
        f"{stated.with_dummies(parameters.dummies).removeprefix(' and')}; the others add none",
        stated.ENTITLED if parameters.tokens else stated.SYBILS,
    )


def _amplified(
    coalition: Coalition, parameters: PrivacyParameters, release: Release, *assumptions: str
) -> Guarantee:
    """Return the guarantee that an honest shuffler gives by this release."""
    dropping = stated.BY_LENGTH if parameters.waived.by_length else stated.NOBODY_DROPS
    honest = " and ".join(name for name, _ in parameters.hops)
    return _by_release(
        coalition,
        parameters,
        release,
        f"{honest} permute uniformly, and neither colludes with the analyzer"
        if honest
        else stated.HONEST_SHUFFLER,
        *assumptions,
        *_added(parameters),
        *_round_assumptions(parameters),
        *((dropping,) if len(parameters.dummies.lengths) > 1 else ()),
        stated.ENCRYPTED,
    )


def _added(parameters: PrivacyParameters) -> tuple[str, ...]:
    """State what each shuffler drops and adds."""
    views = parameters.views or (parameters,)
    of_views = [view.hops or (("the shuffler", view.shuffler),) for view in views]
    return tuple(
        assumption
        for hop in zip(*of_views, strict=True)
        for assumption in stated.shuffler_assumptions([spec for _, spec in hop], hop[0][0])
    )


def _by_release(
    coalition: Coalition, parameters: PrivacyParameters, release: Release, *assumptions: str
) -> Guarantee:
    """Return the (ε, δ) of all rounds, each like this release, under exactly these assumptions."""
    return Guarantee(
        coalition=coalition,
        epsilon=central_epsilon(parameters, release),
        delta=parameters.delta,
        neighbouring=guarantee.REPLACE_ONE,
        theorem=theorem_of(release, parameters.rounds),
        assumptions=assumptions,
    )


def _against_shuffler_and_analyzer(parameters: PrivacyParameters) -> list[Guarantee]:
    """
    Return the guarantees against the shuffler and analyzer together, who see each user's reports.

    Dummies never improve the pure ε, but may give a second row. Of two shufflers each has a row
    with the analyzer, the weaker one with a published result, and both have the last.
    """
    if parameters.hops:
        return _against_either(parameters)
    local, release = local_guarantee("shuffler+analyzer", parameters), parameters.own_release()
    if isinstance(release, LocalRelease):
        return [local]
    numbers = [view.dummies.per_user for view in parameters.views or (parameters,)]
    each = f", at least {min(numbers)} of each view" if len(numbers) > 1 else ""
    own = f"your device adds at least {sum(numbers)} uniform dummies of its own{each}"
    rounds = _round_assumptions(parameters)
    by_dummies = _by_release("shuffler+analyzer", parameters, release, *stated.ALONE, own, *rounds)
    return [local, by_dummies] if _gains(by_dummies, local) else [local]


def _against_either(parameters: PrivacyParameters) -> list[Guarantee]:
    rows, hops = list[Guarantee](), parameters.hops
    coalitions: tuple[Coalition, ...] = ("analyzer+first-shuffler", "analyzer+second-shuffler")
    order = zip(coalitions, hops, hops[::-1], (1, 0), strict=True)
    for coalition, (other, _), (honest, _), hop in order:
        specs = [view.hops[hop][1] for view in parameters.views or (parameters,)]
        assumptions = (
            stated.ALONE[0],
            f"at least one of {honest} and {other} is honest: here {honest} permutes uniformly",
            f"{other} may drop, repeat or invent reports, and nobody else needs to be honest",
            stated.shuffler_assumptions(specs, honest)[0],
            *_round_assumptions(parameters),
            stated.ENCRYPTED,
        )
        release = parameters.release_by(hop)
        rows.append(_by_release(coalition, parameters, release, *assumptions))
    weaker = max(rows, key=lambda row: row.epsilon)
    published = (*weaker.assumptions, "the result may be published")
    weaker = dataclasses.replace(weaker, coalition="either-shuffler", assumptions=published)
    return [*rows, weaker, local_guarantee("both-shufflers+analyzer", parameters)]


def local_guarantee(coalition: Coalition, parameters: PrivacyParameters) -> Guarantee:
    """Return the guarantee that holds against every coalition: the pure local ε of all rounds."""
    not_counted = []
    if parameters.dummies.maximum:
        not_counted.append("this figure ignores any help from your dummies")
    if not parameters.shuffler.only_permutes:
        not_counted.append(
            "this figure ignores the dummies of both shufflers, which know them"
            if parameters.hops
            else "this figure ignores dummies and sampling by the shuffler, which knows them"
        )
    longitudinal: tuple[str, ...] = ()
    if parameters.permanent is not None:
        longitudinal = stated.permanent_assumptions(parameters.permanent.permanent_epsilon)
    return Guarantee(
        coalition=coalition,
        epsilon=parameters.local_epsilon_of_all_rounds,
        delta=0.0,
        neighbouring=guarantee.REPLACE_PERMANENT if longitudinal else guarantee.REPLACE_ONE,
        theorem=stated.NO_LOCAL_NOISE if math.isinf(parameters.local_epsilon) else stated.LOCAL,
        assumptions=(*stated.ALONE, *not_counted, *longitudinal, *_round_assumptions(parameters)),
    )


def _by_encryption(parameters: PrivacyParameters) -> list[Guarantee]:
    """Return the guarantees by encryption alone, against parties without a key for reports."""
    holds = "the encryption holds; δ does not count the probability that the encryption is broken"
    dummies = (
        "the shuffler does not see the result: it could subtract its own dummies from the counts"
    )
    coalitions: tuple[Coalition, ...] = ("shuffler", "network")
    if parameters.tokens:
        coalitions = ("shuffler", "issuer", "issuer+shuffler", "network")
    if parameters.hops:
        dummies = "they do not see the result: they could subtract their dummies from the counts"
        issuer: tuple[Coalition, ...] = ("issuer",) if parameters.tokens else ()
        coalitions = ("both-shufflers", *issuer, "network")
    visible = "it is visible that you take part, when, and with how many reports"
    asking = "it is visible that you ask for a token, and when"
    adds = not parameters.shuffler.only_permutes
    return [
        Guarantee(
            coalition=coalition,
            epsilon=0.0,
            delta=0.0,
            neighbouring=guarantee.REPLACE_ONE,
            theorem=stated.ENCRYPTION,
            assumptions=(
                holds,
                asking if coalition == "issuer" else visible,
                *((dummies,) if adds and "shuffler" in coalition else ()),
            ),
        )
        for coalition in coalitions
    ]


def published_claim(task: Task, n_users: int, n_refused: int, waived: Waived = NONE_WAIVED) -> str:
    """State in a sentence the published bound's ε against the analyzer, or why there is none."""
    if waived.checks:
        return "no paper states a bound for a batch that failed a check"
    if task.relay:
        return "no paper states a bound for the noise of two shufflers"
    key, parameters = task.protocol_row.published_bound, PrivacyParameters.of(task)
    if key is None or parameters.match_count is None:
        return f"no paper states a bound for {task.protocol} against the analyzer alone"
    name, bound = PUBLISHED[key]
    try:
        epsilon = bound(BoundSetting.of(parameters, n_users, n_refused))
    except BoundRangeError as error:
        return f"{name} does not apply: {error}"
    claimed, delta = map(guarantee.rounded_up, (epsilon, task.delta))
    return f"{name} would claim epsilon {claimed} at delta {delta}"
