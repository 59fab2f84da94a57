"""Faults of shuffler, analyzer and devices in what they take from each other."""

import sqlite3
from contextlib import AbstractContextManager
from typing import Any, Final

import analyzer.staging
import analyzer.storage.store
import shuffler.storage.submissions
from analyzer.batch_checks import judge
from analyzer.deduplication import Repeats
from common.crypto.hpke import SealContext
from common.errors import ConflictError as BatchConflictError
from common.messages.batch import BatchManifest
from common.messages.inclusion_proof import BatchCommitment, InclusionProof
from common.messages.submission import Outcome
from deploy.audit.faults import planting
from deploy.audit.faults.fault import Fault
from shuffler.collection import Collection


def copies_counted() -> AbstractContextManager[None]:
    """Plant an analyzer that counts a report as often as it comes."""
    return planting.attribute(Repeats, "without", lambda _, chunk: chunk)


def any_number_taken() -> AbstractContextManager[None]:
    """Plant a shuffler that takes submissions of any length."""
    honest: Any = Collection._take

    async def other(self: Collection, found: Any, envelope: bytes, token: bytes) -> Outcome:
        if len(envelope) > found.task.envelope_bytes:
            return Outcome.STORED
        became: Outcome = await honest(self, found, envelope, token)
        return became

    return planting.attribute(Collection, "_take", other)


def conflicts_taken() -> AbstractContextManager[None]:
    """Plant a shuffler that takes other bytes under an id that it has seen."""
    honest: Any = Collection._store

    async def other(*arguments: Any) -> list[list[Outcome]]:
        return [
            [Outcome.STORED if one is Outcome.CONFLICT else one for one in became]
            for became in await honest(*arguments)
        ]

    return planting.attribute(Collection, "_store", other)


def unbound_ciphertexts() -> AbstractContextManager[None]:
    """Plant seals that do not name their task."""
    return planting.attribute(
        SealContext, "info", lambda self: b"label" + bytes([self.sender, self.recipient])
    )


def every_proof_believed() -> AbstractContextManager[None]:
    """Plant devices that take any proof for one that they were counted."""
    return planting.attribute(InclusionProof, "holds", lambda *_: True)


def every_signature_believed() -> AbstractContextManager[None]:
    """Plant devices that take anybody's signature for the analyzer's."""
    return planting.attribute(BatchCommitment, "check", lambda *_: None)


def sentinels_ignored() -> AbstractContextManager[None]:
    """Plant an analyzer that looks at sentinels and never objects."""
    return planting.function(judge, lambda *_: None)


def manifest_unchecked() -> AbstractContextManager[None]:
    """Plant an analyzer that takes batches of any size, below n_min too."""
    return planting.function(analyzer.staging._check_manifest, lambda *_: None)


def second_batch_taken() -> AbstractContextManager[None]:
    """Plant an analyzer that takes a second batch of a task without a word."""
    honest: Any = analyzer.storage.store._begin_batch

    def other(*arguments: Any) -> bool:
        try:
            return bool(honest(*arguments))
        except BatchConflictError:
            return False

    return planting.function(honest, other)


def second_batch_instead() -> AbstractContextManager[None]:
    """Plant an analyzer that takes a second batch of a task in the place of the first."""
    honest: Any = analyzer.storage.store._begin_batch

    def other(connection: sqlite3.Connection, manifest: BatchManifest) -> bool:
        connection.execute(
            "UPDATE batches SET staged = 0 WHERE task_digest = ? AND batch_id != ?",
            (manifest.task_digest, manifest.batch_id),
        )
        return bool(honest(connection, manifest))

    return planting.function(honest, other)


def tokens_forgotten() -> AbstractContextManager[None]:
    """Plant a shuffler that remembers no token."""
    return planting.function(shuffler.storage.submissions._tokens, lambda *_: None)


DELIVERIES: Final = (
    Fault(
        name="copies-counted",
        says="the analyzer counts a report as often as it comes",
        scenario="shuffler-duplicates",
        check="every report is left once",
        plant=copies_counted,
    ),
    Fault(
        name="any-number-taken",
        says="the shuffler takes submissions of more reports than the task says",
        scenario="dishonest-clients",
        check="more reports than the task's is refused",
        plant=any_number_taken,
    ),
    Fault(
        name="conflicts-taken",
        says="the shuffler takes other bytes under an id that it has seen",
        scenario="dishonest-clients",
        check="other bytes under an id that was used are refused",
        plant=conflicts_taken,
    ),
    Fault(
        name="tokens-forgotten",
        says="the shuffler takes one token twice",
        scenario="dishonest-clients",
        check="a second time it is refused",
        plant=tokens_forgotten,
    ),
    Fault(
        name="unbound-ciphertexts",
        says="what is sealed does not name its task",
        scenario="shuffler-replays",
        check="reports of one task are none of another",
        plant=unbound_ciphertexts,
    ),
    Fault(
        name="second-batch-taken",
        says="the analyzer takes a second batch of a task",
        scenario="shuffler-replays",
        check="a second batch of a task is refused",
        plant=second_batch_taken,
    ),
    Fault(
        name="second-batch-instead",
        says="the analyzer takes a second batch of a task in the place of the one released",
        scenario="services",
        check="a second batch of the same task is refused",
        plant=second_batch_instead,
    ),
    Fault(
        name="every-proof-believed",
        says="a device believes every proof that it was counted",
        scenario="shuffler-drops",
        check="the device concerned has proof of it",
        plant=every_proof_believed,
    ),
    Fault(
        name="every-signature-believed",
        says="a device believes whatever the shuffler signs in the analyzer's place",
        scenario="shuffler-drops",
        check="no device believes what the shuffler signs",
        plant=every_signature_believed,
    ),
    Fault(
        name="sentinels-ignored",
        says="the analyzer looks at sentinels and never objects",
        scenario="shuffler-keeps-order",
        check="a batch in the order of arrival is not released",
        plant=sentinels_ignored,
    ),
    Fault(
        name="batches-below-n-min",
        says="the analyzer takes a batch of fewer users than n_min",
        scenario="shuffler-injects",
        check="a batch below n_min is refused",
        plant=manifest_unchecked,
    ),
)
