"""What a reader of a figure must know: how parameters came about, and which rankings hold."""

import math
from collections.abc import Mapping, Sequence
from typing import Final

from deploy.simulate.row import Row

_CLAIMED_BEST: Final = "od-hp"
_RIVALS: Final = frozenset({"murs", "hp-sdp", "mixdump"})
"""The OD-HP paper ranks itself first against these, at every target [CC24]."""
_FAR: Final = 4.0
"""Standard errors of a difference; of five repeats each, exceeded by chance once in 500."""
_ENOUGH: Final = 5
"""Repeats; of so many, a standard error is known to a third of itself."""
_WORDS: Final = {"published": "by own bounds", "tight": "by tight accounting"}
_ESTIMATES: Final = {"mse": "debiased", "mse_refined": "refined"}


def remarks(rows: Sequence[Row]) -> list[str]:
    """Give sentences: notes on parameters, each once, and where the paper's ranking fails."""
    shown = [row for row in rows if row.task is not None]
    said: dict[tuple[str, str], list[float]] = {}
    for row in shown:
        if row.setting.note:
            key = (row.setting.protocol, row.setting.note)
            said.setdefault(key, []).append(row.setting.target_epsilon)
    sentences = [
        f"{protocol}: {note} (ε = {_list(targets)})." for (protocol, note), targets in said.items()
    ]
    left: dict[tuple[str, str, str], list[float]] = {}
    for row in rows:
        if row.task is None:
            setting = row.setting
            refused = (setting.protocol, _WORDS[setting.accounting], setting.refusal)
            left.setdefault(refused, []).append(setting.target_epsilon)
    sentences += [
        f"{protocol} {words}, ε = {_list(targets)}: left out, {refusal}."
        for (protocol, words, refusal), targets in left.items()
    ]
    return [*sentences, *_ranking(shown), *_few_repeats(shown)]


def _few_repeats(rows: Sequence[Row]) -> list[str]:
    """Warn of standard errors that rest on two to four repeats."""
    fewest = min((row.repeats for row in rows), default=_ENOUGH)
    if not 1 < fewest < _ENOUGH:
        return []
    uncertain = 1 / math.sqrt(2 * (fewest - 1))
    return [f"A standard error of {fewest} repeats is itself uncertain by some {uncertain:.0%}."]


def _ranking(rows: Sequence[Row]) -> list[str]:
    """Say whether the paper's ranking holds here, and else where another protocol has less error.

    A single repeat says nothing of chance, and is not compared.
    """
    compared, exceptions = False, []
    for accounting in dict.fromkeys(row.setting.accounting for row in rows):
        chosen = [row for row in rows if row.setting.accounting == accounting and row.repeats > 1]
        own = {row.setting.target_epsilon: row for row in chosen if _is_claimant(row)}
        pairs = [
            (row, own[row.setting.target_epsilon])
            for row in chosen
            if row.setting.protocol in _RIVALS and row.setting.target_epsilon in own
        ]
        compared = compared or bool(pairs)
        for estimate, words in _ESTIMATES.items():
            beaten: dict[str, list[Row]] = {}
            for rival, claimant in pairs:
                if _below(rival, claimant, estimate):
                    beaten.setdefault(rival.setting.protocol, []).append(rival)
            if beaten:
                where = ", ".join(_where(winners, own) for winners in beaten.values())
                exceptions.append(f"{_WORDS[accounting]}, {words}, less error has {where}")
    if not compared:
        return []
    where = f"not everywhere: {'; '.join(exceptions)}" if exceptions else "at every ε, up to chance"
    claim = "The OD-HP paper ranks OD-HP before MURS, HP-SDP and mixDUMP"
    return [f"{claim}; this holds here {where}."]


def _where(winners: Sequence[Row], own: Mapping[float, Row]) -> str:
    """Say at which targets a rival wins, and what messages of a user this takes of the two."""
    targets = [row.setting.target_epsilon for row in winners]
    return (
        f"{winners[0].setting.protocol} at ε = {_list(targets)} "
        f"(messages of a user: {_range([row.messages_per_user for row in winners])}, "
        f"{_CLAIMED_BEST} {_range([own[target].messages_per_user for target in targets])})"
    )


def _range(numbers: Sequence[float]) -> str:
    least, most = f"{min(numbers):.3g}", f"{max(numbers):.3g}"
    return least if least == most else f"{least} to {most}"


def _is_claimant(row: Row) -> bool:
    return row.setting.protocol == _CLAIMED_BEST


def _below(row: Row, other: Row, estimate: str) -> bool:
    """Whether the one error is below the other by more than chance explains; few repeats do not."""
    one, two = row.errors[estimate], other.errors[estimate]
    spread = math.hypot(one.standard_error, two.standard_error)
    return spread > 0 and one.mean < two.mean - _FAR * spread


def _list(targets: Sequence[float]) -> str:
    return ", ".join(f"{target:g}" for target in sorted(targets))
