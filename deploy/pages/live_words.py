"""What the live page says of a batch: everything but its layout. Pure."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from common.messages.batch import BatchProgress, BatchState
from common.messages.submission import Outcome
from deploy.pages.figures import count
from deploy.pages.forecast import SHORTEST, Sample, Verdict, forecast, quiet_seconds
from deploy.tasks.batch_states import BATCH_STATES, SENTINELS_INCLUDED
from deploy.terminal.durations import between, duration, moment

_QUIET: Final = 60.0
"""Seconds without anybody that are worth a word."""

_CAUSES: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        Outcome.MALFORMED: ("Malformed", "did not open, or had the wrong length"),
        Outcome.CONFLICT: ("Conflict", "the id of another submission, with other bytes"),
        Outcome.TOKEN_USED: ("Token used", "its token came with another submission before"),
        Outcome.UNAUTHENTICATED: ("Unauthenticated", "came without a valid token"),
        Outcome.CLOSED: ("Closed", "came after the batch had closed"),
    }
)
_VERDICTS: Final[Mapping[Verdict, tuple[str, str]]] = MappingProxyType(
    {
        "yes": ("At this rate n_min will be reached before the deadline.", "good"),
        "no": (
            (
                "At this rate n_min will not be reached before the deadline: the batch would "
                "expire, and nothing would be released."
            ),
            "bad",
        ),
        "perhaps": (
            "At this rate it is open whether n_min will be reached before the deadline.",
            "bad",
        ),
    }
)
_NO_VERDICT: Final = {"verdict": "", "outlook": "neutral"}
_OVER: Final = frozenset({BatchState.ERASED, BatchState.EXPIRED, BatchState.QUARANTINED})


def live_answer(progress: BatchProgress, history: Sequence[Sample], now: float) -> dict[str, Any]:
    """
    Give what the page shows, as JSON.

    Args:
        progress: What the shuffler said last.
        history: Samples of its users, the last one of that moment.
        now: Seconds since 1970 UTC.
    """
    state, explanation = BATCH_STATES[progress.state]
    collecting = progress.state is BatchState.COLLECTING
    end = max(progress.n_users, progress.target_size)
    return {
        "state": state,
        "explanation": explanation,
        "tone": _tone(progress.state),
        "over": progress.state in _OVER,
        "users": count(progress.n_users),
        "aim": _aim(progress),
        "filled": _share(progress.n_users, end),
        "mark": _share(progress.n_min, end),
        "forecast": _forecast(progress, history) if collecting else "",
        **(_verdict(progress, history, now) if collecting else _NO_VERDICT),
        "left": _left(progress, now) if collecting else _ended(progress.state),
        "deadline": moment(progress.deadline),
        "refused": _refused(progress.refused),
        "repeated": count(progress.repeated),
        "chart": _chart(history),
    }


def _tone(state: BatchState) -> str:
    if state in {BatchState.EXPIRED, BatchState.QUARANTINED}:
        return "bad"
    return "good" if state in {BatchState.DELIVERED, BatchState.ERASED} else "neutral"


def _aim(progress: BatchProgress) -> str:
    if progress.n_users >= progress.n_min:
        return f"n_min, {count(progress.n_min)}, is reached, {SENTINELS_INCLUDED}"
    missing = count(progress.n_min - progress.n_users)
    if progress.state is BatchState.COLLECTING:
        return f"{missing} more until n_min, {SENTINELS_INCLUDED}"
    return f"{missing} too few to be released: n_min was {count(progress.n_min)}"


def _share(number: int, of: int) -> float:
    return round(100 * min(1.0, number / of), 3)


def _forecast(progress: BatchProgress, history: Sequence[Sample]) -> str:
    """Say when the next threshold will be reached: n_min, then the target."""
    enough = progress.n_users >= progress.n_min
    wanted, name = (
        (progress.target_size, f"the target of {count(progress.target_size)}")
        if enough
        else (progress.n_min, f"n_min, {count(progress.n_min)} users,")
    )
    if progress.n_users >= progress.target_size:
        return "The target is reached; the batch is about to close."
    watched = history[-1][0] - history[0][0] if history else 0.0
    quiet = quiet_seconds(history)
    silence = f"No users arrived in the last {duration(quiet)}. " if quiet >= _QUIET else ""
    expected = forecast(history, wanted)
    if expected is not None:
        range_ = between(expected.soonest, expected.latest)
        return f"{silence}At the rate of the last minutes {name} is reached in {range_}."
    if watched < SHORTEST:
        return "This page has only begun to watch; how long it will take is told in a moment."
    seen = f"No users arrived in the last {duration(watched if not silence else quiet)}. "
    return f"{seen}How long it will take cannot be told."


def _verdict(progress: BatchProgress, history: Sequence[Sample], now: float) -> dict[str, str]:
    """Say whether n_min will be reached by the deadline."""
    if progress.n_users >= progress.n_min:
        return {
            "verdict": (
                "It closes at the deadline at the latest, and can then be released if n_min holds "
                "without an operator's sentinels."
            ),
            "outlook": "good",
        }
    expected = forecast(history, progress.n_min)
    if expected is None:
        return _NO_VERDICT
    sentence, outlook = _VERDICTS[expected.within(progress.deadline - now)]
    return {"verdict": sentence, "outlook": outlook}


def _ended(state: BatchState) -> str:
    return "It has expired" if state is BatchState.EXPIRED else "It has closed"


def _left(progress: BatchProgress, now: float) -> str:
    left = progress.deadline - now
    return f"{duration(left)} left" if left > 0 else "passed; the batch is about to end"


def _refused(refused: Mapping[str, int]) -> list[dict[str, str]]:
    """List the causes that are known, and whatever else the shuffler names."""
    causes = [*_CAUSES, *(cause for cause in refused if cause not in _CAUSES)]
    rows = []
    for cause in causes:
        name, why = _CAUSES.get(cause, (cause, ""))
        rows.append({"name": name, "why": why, "number": count(refused.get(cause, 0))})
    return rows


def _chart(history: Sequence[Sample]) -> list[tuple[float, int]]:
    """Give the samples as seconds before now, and users."""
    now = history[-1][0] if history else 0.0
    return [(round(seconds - now, 1), n_users) for seconds, n_users in history]
