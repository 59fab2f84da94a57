"""Sentences under a comparison: notes on parameters, refusals, rankings, limits of theory."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from deploy.planning.value_design import BIASED
from deploy.simulate.row import SweepRow

_CLAIMED_BEST: Final = "od-hp"
_RIVALS: Final = frozenset({"murs", "hp-sdp", "mixdump"})
"""The OD-HP paper ranks itself first against these, at every target [CC24]."""
_CLEAR: Final = 4.0
"""Standard errors of a difference; of five repeats each, exceeded by chance once in 500."""
_ENOUGH: Final = 5
"""Repeats; of so many, a standard error is known to a third of itself."""
_ACCOUNTINGS: Final = {"published": "by own bounds", "tight": "by tight accounting"}
_ESTIMATES: Final = {"mse": "debiased", "mse_refined": "refined"}


def remarks(rows: Sequence[SweepRow]) -> list[str]:
    """Return sentences: notes and refusals, each once, and where the paper's ranking fails."""
    shown = [row for row in rows if row.task is not None]
    notes = _by_targets(shown, lambda row: (row.setting.protocol, row.setting.note))
    sentences = [
        f"{protocol}: {note} (ε = {targets})." for (protocol, note), targets in notes if note
    ]
    left_out = _by_targets(
        [row for row in rows if row.task is None],
        lambda row: (
            f"{row.setting.protocol} {_ACCOUNTINGS[row.setting.accounting]}",
            row.setting.refusal,
        ),
    )
    sentences += [f"{who}, ε = {targets}: left out, {why}." for (who, why), targets in left_out]
    return [*sentences, *_ranking(shown), *_few_repeats(shown), *_theory(shown)]


def _by_targets(
    rows: Sequence[SweepRow], key: Callable[[SweepRow], tuple[str, str]]
) -> list[tuple[tuple[str, str], str]]:
    """Group rows by a key, with the targets of each group."""
    targets: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        targets.setdefault(key(row), []).append(row.setting.target_epsilon)
    return [(group, _list(found)) for group, found in targets.items()]


def _theory(rows: Sequence[SweepRow]) -> list[str]:
    sentences = []
    if any(row.population.kind == "string" for row in rows):
        sentences.append(
            "For rappor theory is a floor: candidates that share bits, and frequent texts that are "
            "none, add to it."
        )
    if any(row.setting.protocol in BIASED for row in rows):
        sentences.append(
            "For multi-rphm there is no theory: the loss by its projection follows from the values."
        )
    return sentences


def _few_repeats(rows: Sequence[SweepRow]) -> list[str]:
    """Warn of standard errors that rest on two to four repeats."""
    fewest = min((len(row.repeats) for row in rows), default=_ENOUGH)
    if not 1 < fewest < _ENOUGH:
        return []
    uncertain = 1 / math.sqrt(2 * (fewest - 1))
    return [f"A standard error of {fewest} repeats is itself uncertain by some {uncertain:.0%}."]


def _ranking(rows: Sequence[SweepRow]) -> list[str]:
    """State where the paper's ranking fails; a single repeat knows no chance and is left out."""
    compared, exceptions = False, []
    for accounting in dict.fromkeys(row.setting.accounting for row in rows):
        chosen = [
            row for row in rows if row.setting.accounting == accounting and len(row.repeats) > 1
        ]
        own = {
            row.setting.target_epsilon: row
            for row in chosen
            if row.setting.protocol == _CLAIMED_BEST
        }
        pairs = [
            (row, own[row.setting.target_epsilon])
            for row in chosen
            if row.setting.protocol in _RIVALS and row.setting.target_epsilon in own
        ]
        compared = compared or bool(pairs)
        for estimate, words in _ESTIMATES.items():
            beaten: dict[str, list[SweepRow]] = {}
            for rival, claimant in pairs:
                if _below(rival, claimant, estimate):
                    beaten.setdefault(rival.setting.protocol, []).append(rival)
            if beaten:
                where = ", ".join(_where(winners, own) for winners in beaten.values())
                by = _ACCOUNTINGS[accounting]
                exceptions.append(f"{by}, {words}, less error has {where}")
    if not compared:
        return []
    where = f"not everywhere: {'; '.join(exceptions)}" if exceptions else "at every ε, up to chance"
    claim = "The OD-HP paper ranks OD-HP before MURS, HP-SDP and mixDUMP"
    return [f"{claim}; this holds here {where}."]


def _where(winners: Sequence[SweepRow], own: Mapping[float, SweepRow]) -> str:
    """Return the targets at which a rival wins, and the messages that each of the two takes."""
    targets = [row.setting.target_epsilon for row in winners]
    return (
        f"{winners[0].setting.protocol} at ε = {_list(targets)} "
        f"(messages of a user: {_range([row.messages_per_user for row in winners])}, "
        f"{_CLAIMED_BEST} {_range([own[target].messages_per_user for target in targets])})"
    )


def _range(numbers: Sequence[float]) -> str:
    least, most = f"{min(numbers):.3g}", f"{max(numbers):.3g}"
    return least if least == most else f"{least} to {most}"


def _below(row: SweepRow, other: SweepRow, estimate: str) -> bool:
    """Whether the one error is below the other by more than chance explains."""
    one, two = row.errors[estimate], other.errors[estimate]
    spread = math.hypot(one.standard_error, two.standard_error)
    return spread > 0 and one.mean < two.mean - _CLEAR * spread


def _list(targets: Sequence[float]) -> str:
    return ", ".join(f"{target:g}" for target in sorted(targets))
