"""What is tried on the way of a play, each thing once: what must hold of it, and in which row."""

import math
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

from common.task.task import Task
from deploy.audit.checks import Checks


class Fact(StrEnum):
    """Something that was tried, and must come out so."""

    NOT_CLOSED_BELOW_N_MIN = "a batch below n_min is not closed for its operator"
    OVER_TAKES_NO_MORE = "a batch that was released takes no more submissions"
    ONE_BATCH_A_TASK = "a second batch of the same task is refused"
    WITHIN_BUDGET = "a task that the population's budget does not allow is not published"
    LARGER_BUDGET = "the same task with a larger budget is published"

    FIRST_CLOSED = "the operator closes the first batch"
    EARLY_CLOSED = "the operator closes the early batch"
    AGAIN_CLOSES = "the again batch closes once all have come"
    MARKED_CLOSES = "the marked batch closes once all have come"
    SENT_AGAIN = "after a lost acknowledgement the same answer is sent again"
    ONE_VALUE = "a second value of a person is not sent"
    MADE_UP_TAKEN = "a well-formed envelope that no device made is taken"
    NO_GARBAGE = "the shuffler refuses garbage"
    NO_OTHER_LENGTH = "the shuffler refuses an envelope of another length"
    NO_OTHER_BYTES = "the shuffler refuses other bytes under an id that was used"
    NO_OTHER_TASK = "the shuffler refuses an envelope that was sealed for another task"
    SAME_BYTES = "the same bytes again are taken for the same"
    KEPT_ON_DEVICE = "what each person spent, and sent, is on the device after a stop"

    OTHER_SIGNER = "a task that another identity signed is not answered"
    OTHER_TASK = "another task than the one asked for is not answered"
    PAST_DEADLINE = "a task whose deadline has passed is not answered"
    LOW_CENTRAL = "a task with a central guarantee 1 % too low is not answered"
    LOW_LOCAL = "a task with a local ε 1 % too low is not answered"
    OVER_CAP = "a task over the cap on local ε is not answered"
    WITHIN_CAPS = "an honest task within the caps is answered"
    OVER_TOTAL = "what was spent is kept, and a second task over the budget is not answered"

    EACH_OUTCOME = "some wrong answers are refused, each for its own cause, alone and in one call"

    SHARE_OF_CONNECTION = "a connection that had its share of submissions is refused"
    PROTECTION_SAID = "a service without a word on protection does not start"
    NO_PLAIN_LISTENING = "no service listens in plaintext beyond its own machine"
    NO_PLAIN_CALLS = "no party calls another in plaintext beyond its own machine"


OF_ARRIVALS: Final = (
    Fact.NOT_CLOSED_BELOW_N_MIN,
    Fact.OVER_TAKES_NO_MORE,
    Fact.ONE_BATCH_A_TASK,
    Fact.WITHIN_BUDGET,
    Fact.LARGER_BUDGET,
)
OF_TELLING: Final = (Fact.EACH_OUTCOME,)
OF_CALLERS: Final = (
    Fact.SHARE_OF_CONNECTION,
    Fact.PROTECTION_SAID,
    Fact.NO_PLAIN_LISTENING,
    Fact.NO_PLAIN_CALLS,
)


def of_devices(task: Task) -> tuple[Fact, ...]:
    """Give those of devices and retries, of what the play of a task can try."""
    untried = {*OF_ARRIVALS, *OF_TELLING, *OF_CALLERS}
    if not task.central_epsilon > 0:
        untried.add(Fact.LOW_CENTRAL)
    if math.isinf(task.local_epsilon):
        untried.add(Fact.LOW_LOCAL)
    return tuple(fact for fact in Fact if fact not in untried)


def must_hold(checks: Checks, tried: Mapping[Fact, bool], expected: Iterable[Fact]) -> None:
    """Note that all of some facts hold; one that was never tried does not."""
    for fact in expected:
        checks.must(fact.value, tried.get(fact, False))
