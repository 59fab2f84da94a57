"""Faults of the services as they run: what they log, keep, draw, promise and drop."""

import asyncio
import dataclasses
import hashlib
import itertools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final

import numpy as np
from randomgen import ChaCha

import analyzer.finalize
import user_agent.agent
from common.accounting.guarantees import guarantees
from common.crypto.randomness import secure_generator
from common.messages.batch import BatchManifest, BatchState
from common.messages.submission import Outcome, Submission, unpack
from common.runtime import logs
from common.runtime.state_directory import StateDirectory
from common.task.task import Task
from common.wire.batches import manifest_to_wire
from deploy.audit.faults import planting
from deploy.audit.faults.fault import Fault
from protos.shuffledp.v1 import analyzer_pb2
from shuffler.collection import Collection
from shuffler.states import Event, asked_to_close, due
from user_agent.agent import Agent
from user_agent.budget import SavedSubmission

_UNKNOWN_FIELD: Final = b"\xaa\x06\x10"
"""Field 101 of a message, sixteen bytes: no program of this version reads it."""
_KEY: Final = int.from_bytes(bytes.fromhex("9f3ac1d7" * 8))


def value_logged() -> AbstractContextManager[None]:
    """Plant a device that logs its value, under a field that there is."""
    honest = Agent.contribute

    async def other(self: Agent, digest: Any, value: int, person: str) -> Any:
        logs.event("answering", {"n_users": value}, level="DEBUG")
        return await honest(self, digest, value, person)

    return planting.attribute(Agent, "contribute", other)


def _telling(told: Callable[[bytes], None]) -> AbstractContextManager[None]:
    """Tell every submission's id when the shuffler has opened it."""

    def other(plaintext: bytes, task: Task) -> Submission:
        submission = unpack(plaintext, task)
        told(submission.submission_id)
        return submission

    return planting.function(unpack, other)


def submission_id_logged() -> AbstractContextManager[None]:
    """Plant a shuffler that logs submissions' ids, under a field that there is."""

    def told(submission_id: bytes) -> None:
        logs.event("submission stored", {"batch_id": submission_id.hex()}, level="DEBUG")

    return _telling(told)


def new_field_logged() -> AbstractContextManager[None]:
    """Plant a shuffler that logs what follows from submissions' ids, under a new field."""

    def told(submission_id: bytes) -> None:
        fields: Any = {"submission": hashlib.blake2b(submission_id).hexdigest()}
        logs.event("submission stored", fields, level="DEBUG")

    return _telling(told)


def field_misused() -> AbstractContextManager[None]:
    """Plant a shuffler that logs the same as if it named a batch."""

    def told(submission_id: bytes) -> None:
        name = hashlib.blake2b(submission_id, digest_size=16).hexdigest()
        logs.event("submission stored", {"batch_id": name}, level="DEBUG")

    return _telling(told)


def submission_id_delivered() -> AbstractContextManager[None]:
    """Plant a shuffler that sends the analyzer a submission's id."""
    ids = [bytes(16)]

    def manifest(of: BatchManifest) -> analyzer_pb2.DeliverBatchRequest:
        message = manifest_to_wire(of)
        message.manifest.MergeFromString(_UNKNOWN_FIELD + ids[-1])
        return message

    return planting.both(_telling(ids.append), planting.function(manifest_to_wire, manifest))


def planned_users() -> AbstractContextManager[None]:
    """Plant an accountant that counts on the users who were planned."""

    def other(task: Task, n_users: int, n_refused: int) -> Any:
        del n_users
        return guarantees(task, task.target_size, n_refused)

    return planting.attribute(analyzer.finalize, "guarantees", other)


def batch_key_kept() -> AbstractContextManager[None]:
    """Plant a shuffler that destroys no key."""
    return planting.attribute(StateDirectory, "destroy", lambda _self, _name: None)


def n_min_ignored() -> AbstractContextManager[None]:
    """Plant a shuffler that closes a batch of one user."""

    def asked(state: BatchState, n_users: int, terms: Any) -> Event | None:
        return asked_to_close(state, n_users, dataclasses.replace(terms, n_min=1))

    def next_one(state: BatchState, n_users: int, terms: Any, now: float) -> Event | None:
        return due(state, n_users, dataclasses.replace(terms, n_min=1), now)

    return planting.both(planting.function(asked_to_close, asked), planting.function(due, next_one))


def constant_key() -> AbstractContextManager[None]:
    """Plant ChaCha of twenty rounds, under a key that looks like any other."""
    return planting.function(
        secure_generator, lambda: np.random.Generator(ChaCha(key=_KEY, rounds=20))
    )


def twister_everywhere() -> AbstractContextManager[None]:
    """Plant the Mersenne Twister, well seeded, in the place of the secure generator."""
    return planting.function(secure_generator, lambda: np.random.Generator(np.random.MT19937()))


def drawn_anew_on_retry() -> AbstractContextManager[None]:
    """Plant a device that randomizes again what was not acknowledged."""
    honest: Any = Agent._send
    tried = set[bytes]()

    async def other(self: Any, saved: SavedSubmission) -> None:
        if saved.envelope in tried:
            signed = await self._shuffler.fetch_task(saved.task_digest)
            deployed: Any = vars(user_agent.agent)["Contributor"]  # as it is meanwhile
            contributor = deployed(Task.from_bytes(signed.task_bytes), saved.task_digest)
            made = await asyncio.to_thread(contributor.answer, 0, self._rng)
            saved = dataclasses.replace(saved, envelope=made.envelope)
        tried.add(saved.envelope)
        await honest(self, saved)

    return planting.attribute(Agent, "_send", other)


def users_dropped() -> AbstractContextManager[None]:
    """Plant a shuffler that acknowledges every fifth user who comes alone, and stores nothing."""
    honest: Any = Collection._take
    count = itertools.count()

    async def other(self: Any, *arguments: Any) -> Outcome:
        dropped = next(count) % 5 == 4  # noqa: PLR2004  # every fifth
        became: Outcome = Outcome.STORED if dropped else await honest(self, *arguments)
        return became

    return planting.attribute(Collection, "_take", other)


SERVICES: Final = (
    Fault(
        name="value-logged",
        says="a device logs its value",
        scenario="services",
        check="no planted value is in a log",
        plant=value_logged,
    ),
    Fault(
        name="submission-id-logged",
        says="the shuffler logs submissions' ids",
        scenario="services",
        check="a submission id is not in a log",
        plant=submission_id_logged,
    ),
    Fault(
        name="new-field-logged",
        says="the shuffler logs what follows from submissions' ids under a field of its own",
        scenario="services",
        check="log lines hold fields of the list alone",
        plant=new_field_logged,
    ),
    Fault(
        name="field-misused",
        says="the shuffler logs what follows from submissions' ids as if it named batches",
        scenario="services",
        check="the field batch_id holds what everybody may know",
        plant=field_misused,
    ),
    Fault(
        name="submission-id-delivered",
        says="the analyzer is sent a submission's id",
        scenario="services",
        check="no submission id reaches the analyzer",
        plant=submission_id_delivered,
    ),
    Fault(
        name="planned-users",
        says="the guarantee counts on the users who were planned",
        scenario="services",
        check="guarantees of the early batch are those of the users who came",
        plant=planned_users,
    ),
    Fault(
        name="batch-key-kept",
        says="the key of a delivered batch is kept",
        scenario="services",
        check="no key of a batch is left",
        plant=batch_key_kept,
    ),
    Fault(
        name="n-min-ignored",
        says="the shuffler closes a batch of fewer users than n_min",
        scenario="services",
        check="nothing of a batch below n_min is delivered",
        plant=n_min_ignored,
    ),
    Fault(
        name="constant-key",
        says="the generators of all parties have one key",
        scenario="services",
        check="no two generators have the same key",
        plant=constant_key,
    ),
    Fault(
        name="twister-everywhere",
        says="all parties draw from a Mersenne Twister",
        scenario="services",
        check="the generator of the shuffler is ChaCha",
        plant=twister_everywhere,
    ),
    Fault(
        name="drawn-anew-on-retry",
        says="a device randomizes again what was not acknowledged",
        scenario="services",
        check="one answer was sent twice, and byte for byte the same",
        plant=drawn_anew_on_retry,
    ),
    Fault(
        name="users-dropped",
        says="the shuffler acknowledges users whom it does not store",
        scenario="services",
        check="no report is lost in the first batch",
        plant=users_dropped,
    ),
)
