"""Data for the live page: a batch's latest progress, and a forecast from its history."""

import json
import math
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from scipy.special import fdtri

from shuffledp.common import errors
from shuffledp.common.messages.batch import BatchProgress, BatchState
from shuffledp.common.runtime.clock import Clock
from shuffledp.common.task.task import Task
from shuffledp.common.task_digest import TaskDigest
from shuffledp.deploy.pages import page
from shuffledp.deploy.tasks.task_view import DELIVERED, LOST, describe_state

Sample = tuple[float, int]
"""Time in seconds, and the number of users at that time."""

WINDOWS: Final = (60.0, 600.0)
"""Lookback windows in seconds; the forecast covers the arrival rates of both."""
MIN_HISTORY: Final = 15.0
"""Minimum seconds of history for a forecast."""
_TAIL: Final = 0.05
"""Probability below and above the range of each window."""
_KEPT_SECONDS: Final = max(WINDOWS) + 60
_MAX_SAMPLES: Final = 1000


def live_page(digest: TaskDigest, *, poll_seconds: float, task: Task | None = None) -> str:
    """Render a task's live page, which fetches `progress.json` every `poll_seconds`."""
    return page.render(
        "live.html",
        styles=("live.css",),
        scripts=("live.js",),
        data={"poll_seconds": poll_seconds},
        polls_server=True,
        title="The batch, live",
        digest=digest.hex(),
        shufflers=[each.name for each in task.shufflers] if task and task.relay else [],
    )


class LiveFeed:
    """Recent progress of a batch. One thread updates it; any thread may read `answer` (JSON)."""

    def __init__(self, clock: Clock, progress: BatchProgress, task: Task | None = None) -> None:
        self._clock, self._task = clock, task
        self._history: deque[Sample] = deque(maxlen=_MAX_SAMPLES)
        self.take(progress)

    def take(self, progress: BatchProgress) -> None:
        """Record the shuffler's latest progress."""
        seconds = self._clock.elapsed()
        self._history.append((seconds, progress.n_users))
        while self._history[0][0] < seconds - _KEPT_SECONDS:
            self._history.popleft()
        self._progress = progress
        self.answer = self._render("")

    def take_error(self, error: errors.ShuffleDpError) -> None:
        """
        Show an error on the page, or raise it if the shuffler refuses the token.

        A task unknown to the shuffler has not been fetched yet.
        """
        status = error.status if isinstance(error, errors.PeerRefusalError) else ""
        if status == errors.CredentialError.status:
            raise error
        text = f"The request to the shuffler failed: {error}."
        if status == errors.UnknownTaskError.status:
            text = "No device has fetched this task from the shuffler yet."
        self.answer = self._render(text)

    def _render(self, error: str) -> bytes:
        return json.dumps({"error": error, "batch": self._batch()}, allow_nan=False).encode()

    def _batch(self) -> dict[str, Any]:
        progress, history = self._progress, tuple(self._history)
        state = progress.state
        headline, explanation = describe_state(state, self._task)
        enough = progress.n_users >= progress.n_min
        goal = progress.target_size if enough else progress.n_min
        html = page.fragment(
            "live_batch.html",
            progress=progress,
            collecting=state is BatchState.COLLECTING,
            expired=state is BatchState.EXPIRED,
            left=progress.deadline - self._clock.now(),
            expected=forecast(history, goal),
            quiet=quiet_seconds(history),
            watched=history[-1][0] - history[0][0],
            min_history=MIN_HISTORY,
            arrived=history[-1][1] - history[0][1],
            curve=_curve(history),
        )
        return {
            "state": headline,
            "explanation": explanation,
            "tone": "good" if state in DELIVERED else "bad" if state in LOST else "neutral",
            "over": state in LOST or state is BatchState.ERASED,
            "users": f"{progress.n_users:,}",
            "html": html,
        }


def _curve(history: tuple[Sample, ...]) -> str:
    """Return samples as SVG path data after `M`, within 400 x 80; empty for a single sample."""
    (first, before), (last, after) = history[0], history[-1]
    span, rise = max(1.0, last - first), max(1, after - before)
    points = (
        f"{400 * (1 - (last - seconds) / span):.1f} {100 - 80 * (n_users - before) / rise:.1f}"
        for seconds, n_users in history
    )
    return "L".join(points) if len(history) > 1 else ""


def forecast(history: Sequence[Sample], goal: int) -> tuple[float, float] | None:
    """
    Return the least and most seconds from now until `goal` users are reached.

    None without arrivals or with too little history.

    If arrivals are a Poisson process and k users arrived in T seconds, the time until r more arrive
    is T · r / (k + 1/2) times a random number with the F distribution of 2r and 2k + 1 degrees of
    freedom, under Jeffreys' prior for the rate. The forecast spans the 90 % ranges of all WINDOWS;
    the most is infinite if no user arrived in one of them. The last sample is the present.
    """
    now, n_users = history[-1]
    missing = goal - n_users
    if missing <= 0:
        return 0.0, 0.0
    soonest, latest = math.inf, 0.0
    for window in WINDOWS:
        since, before = next(sample for sample in history if sample[0] >= now - window)
        seconds, arrived = now - since, n_users - before
        if seconds < MIN_HISTORY:
            continue
        if arrived == 0:
            latest = math.inf
            continue
        scale = seconds * missing / (arrived + 0.5)
        low, high = scale * fdtri(2 * missing, 2 * arrived + 1, [_TAIL, 1 - _TAIL])
        soonest = min(soonest, float(low))
        latest = max(latest, float(high) if math.isfinite(high) else math.inf)
    return (soonest, latest) if soonest < math.inf else None


def quiet_seconds(history: Sequence[Sample]) -> float:
    """Return the seconds since the last arrival, or the start of the history."""
    now, n_users = history[-1]
    return now - min(seconds for seconds, there in history if there == n_users)
