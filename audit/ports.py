"""The deployed code that scenarios call, so that the self-test can replace some of it."""

from typing import Any, cast

from numpy.random import Generator

from analyzer.sentinels import check_sentinels
from audit.families.family import Family, Items
from audit.harness.in_process_run import InProcessRun
from common.accounting import guarantees
from common.accounting.guarantees import PrivacyParameters
from common.crypto.privacy_tokens import PendingToken
from common.mechanisms.base import Mechanism, Randomizer, Reports, Tally
from common.messages.guarantee import Guarantee
from common.messages.submission import Value
from common.runtime.parts.executor import Executor
from common.task.dummies import Drawn
from common.task.task import Task
from common.task.uniform_dummies import UniformDummies
from shuffler.collection import check_length
from shuffler.permutation import permute
from user_agent.contribution import Contributor


class Ports:
    """Functions of the parties and of the accountant, and the parties in one process."""

    parties: type[InProcessRun] = InProcessRun

    # --- devices

    contributor: type[Contributor] = Contributor
    draw_token = staticmethod(PendingToken.draw)

    def start_generator(self, rng: Generator) -> Generator:
        """Return the generator of a device that has just started."""
        return rng

    def draw_reports(self, family: Family[Any], value: Value, n: int, rng: Generator) -> Reports:
        """Draw the reports of n users who all hold the same value."""
        return family.draw(value, n, rng)

    def randomize(self, mechanism: Mechanism, values: Items, rng: Generator) -> Reports:
        """Randomize users' items."""
        return mechanism.randomize(values, rng)

    def draw_numbers(self, task: Task, n_users: int, rng: Generator) -> Items:
        """Draw how many uniform dummies each user adds."""
        return cast("UniformDummies", task.dummies).draw_numbers(n_users, rng)

    def draw_dummies(self, task: Task, mechanism: Mechanism, n: int, rng: Generator) -> Drawn:
        """Draw how many dummies each of n users adds, and the dummies, user by user."""
        return task.dummies.draw(mechanism, n, rng)

    # --- the shuffler

    check_length = staticmethod(check_length)
    permute = staticmethod(permute)

    def draw_item_dummies(self, task: Task, n_items: int, rng: Generator) -> Items:
        """Draw how many dummies of each item the shuffler adds."""
        return task.shuffler.draw_item_dummies(n_items, rng)

    def shuffler_executor(self, executor: Executor) -> Executor:
        """Return what runs the parts of the shuffler's batches."""
        return executor

    # --- the analyzer and its accountant

    check_sentinels = staticmethod(check_sentinels)
    local_guarantee = staticmethod(guarantees.local_guarantee)

    def analyzer_guarantee(self, parameters: PrivacyParameters, n: int, honest: int) -> Guarantee:
        """Return the guarantee against the analyzer and all of n users but the honest ones."""
        return guarantees.analyzer_guarantee(parameters, n, honest)

    def skippers_guarantee(self, parameters: PrivacyParameters, n: int, adding: int) -> Guarantee:
        """Return the guarantee against the analyzer if few of n users add dummies."""
        return guarantees.skippers_guarantee(parameters, n, adding)

    def task_bytes(self, task: Task) -> bytes:
        """Encode a task."""
        return task.to_bytes()

    def tally(self, mechanism: Randomizer, reports: Reports) -> Tally:
        """Count reports."""
        return mechanism.tally(reports)
