"""What a live page is answered: the newest progress, and what follows from those before."""

import json
from collections import deque
from typing import Final

from common.errors import PeerRefusalError, ShuffleDpError, UnknownTaskError
from common.messages.batch import BatchProgress
from common.runtime.clock import Clock
from deploy.pages.forecast import WINDOWS, Sample
from deploy.pages.live_words import live_answer
from deploy.terminal.durations import duration

_KEPT_SECONDS: Final = max(WINDOWS) + 60
_MOST_SAMPLES: Final = 1000


class LiveFeed:
    """
    Keeps the last minutes of a batch's progress, and the answer made of them.

    One loop takes progress in; any thread may read `answer`, which is replaced as a whole.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._history: deque[Sample] = deque(maxlen=_MOST_SAMPLES)
        self._progress: BatchProgress | None = None
        self.answer = self._written("The shuffler has not answered yet.")

    def take(self, progress: BatchProgress) -> None:
        """Take in what the shuffler said."""
        seconds = self._clock.elapsed()
        self._history.append((seconds, progress.n_users))
        while self._history[0][0] < seconds - _KEPT_SECONDS:
            self._history.popleft()
        self._progress = progress
        self.answer = self._written("")

    def fail(self, reason: str) -> None:
        """Take in that the shuffler could not be asked, and say so beside what is known."""
        known = ""
        if self._history:
            ago = duration(self._clock.elapsed() - self._history[-1][0])
            known = f" What is shown it said {ago} ago."
        self.answer = self._written(f"The shuffler cannot be asked: {reason}.{known}")

    def take_error(self, error: ShuffleDpError) -> None:
        """Take in why there is no progress: a shuffler has no batch before a device asks for it."""
        if isinstance(error, PeerRefusalError) and error.status == UnknownTaskError.status:
            self.answer = self._written("Nobody has fetched this task from the shuffler yet.")
        else:
            self.fail(str(error))

    def _written(self, trouble: str) -> bytes:
        shown = (
            None
            if self._progress is None
            else live_answer(self._progress, tuple(self._history), self._clock.now())
        )
        return json.dumps({"trouble": trouble, "batch": shown}, allow_nan=False).encode()
