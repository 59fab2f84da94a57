"""Faults of sentinels and charges, of how services start and sign; and the rows of `misled`."""

import asyncio
import dataclasses
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

import analyzer.server
import shuffler.server
from analyzer import batch_checks as verdict
from analyzer.release import Releases
from analyzer.sentinel_matching import Sightings
from analyzer.storage import sentinel_table, store
from common.crypto.signing import PublicIdentity, SignedTask, SigningIdentity
from common.errors import ProofError as SignatureError
from common.messages.batch import BatchManifest
from common.runtime import certificates
from common.runtime import service as process
from common.runtime.key_store import KeyStore, Rotation
from common.task.task import Task
from deploy.audit.faults import misled, planting
from deploy.audit.faults.fault import Fault


def sentinels_make_up_numbers() -> AbstractContextManager[None]:
    """Plant an analyzer that counts sentinels among the users of n_min."""
    honest = verdict.of_users_alone

    def other(manifest: BatchManifest, sightings: Sightings, task: Task) -> BatchManifest:
        if manifest.n_users < task.n_min:
            return honest(manifest, sightings, task)
        return honest(manifest, sightings, dataclasses.replace(task, n_min=1))

    return planting.function(honest, other)


def sentinels_charged() -> AbstractContextManager[None]:
    """Plant one that charges a batch as it was delivered."""
    honest = Releases._charge_and_release

    async def other(self: Releases, manifest: BatchManifest, *given: Any) -> None:
        staged = {one.task_digest: one for one in await self._store.staged()}
        await honest(self, staged[manifest.task_digest], *given)

    return planting.attribute(Releases, "_charge_and_release", other)


def all_kept_unjudged() -> AbstractContextManager[None]:
    """Plant one that suspects a shuffler of dropping too many alone."""
    return planting.attribute(verdict, "bdtrc", lambda *_: 1.0)


def sentinels_registered_late() -> AbstractContextManager[None]:
    """Plant one that takes new sentinels when the batch is there."""
    honest = sentinel_table.register

    def other(
        connection: Any,  # sqlite3's
        digest: Any,  # a task's
        sentinels: Sequence[bytes],
        most: int,
        *,
        acknowledged: bool,
    ) -> None:
        known = {
            leaves: sentinel_table._acknowledged(connection, digest, leaves) for leaves in sentinels
        }
        new = [leaves for leaves, was in known.items() if was is None]
        if new:
            sentinel_table._add(connection, digest, new, most, acknowledged=acknowledged)
        else:
            honest(connection, digest, sentinels, most, acknowledged=acknowledged)

    return planting.function(honest, other)


def any_share_refused() -> AbstractContextManager[None]:
    """Plant a start of the analyzer that leaves its setting of refused reports out."""

    def other(**given: Any) -> Releases:  # as Releases takes them
        return Releases(**(given | {"most_refused_share": 1.0}))

    return planting.attribute(analyzer.server, "Releases", other)


def no_key_destroyed() -> AbstractContextManager[None]:
    """Plant services that never know which keys are needed, and so destroy none."""

    async def unknown() -> None:
        return None

    def other(**given: Any) -> Rotation:  # as Rotation takes them
        return Rotation(**(given | {"needed": unknown}))

    return planting.both(
        planting.attribute(analyzer.server, "Rotation", other),
        planting.attribute(shuffler.server, "Rotation", other),
    )


def no_rotation(service: Any, place: int) -> AbstractContextManager[None]:  # a class
    """Plant a service that rotates its keys at its start alone."""
    honest = service.__init__

    def other(self: Any, **given: Any) -> None:  # a service, and what it takes
        honest(self, **given)
        rotating: asyncio.Task[None] = self._running.pop(place)
        rotating.cancel()

    return planting.attribute(service, "__init__", other)


def analyzer_without_rotation() -> AbstractContextManager[None]:
    """Plant it in the analyzer."""
    return no_rotation(analyzer.server.AnalyzerService, 0)


def shuffler_without_rotation() -> AbstractContextManager[None]:
    """Plant it in the shuffler."""
    return no_rotation(shuffler.server.ShufflerService, 1)


def one_look_at_keys() -> AbstractContextManager[None]:
    """Plant services that look after their keys until something fails."""

    async def other(self: Rotation, tick: float = 0.0) -> None:
        while True:
            await asyncio.sleep(tick)
            await self.do_what_is_due()

    return planting.attribute(Rotation, "run", other)


def workers_untold() -> AbstractContextManager[None]:
    """Plant services that let their workers keep destroyed keys."""

    async def other(self: Rotation) -> None:
        now = self._clock.now()
        self._keys.rotate(now, await self._needed() if self._keys.may_destroy(now) else None)
        self._publish()

    return planting.attribute(Rotation, "do_what_is_due", other)


def destroyed_keys_held() -> AbstractContextManager[None]:
    """Plant services that keep destroyed keys in memory."""
    honest = KeyStore._destroy_files

    def other(self: KeyStore) -> bool:
        held = dict(self._keys)
        destroyed = honest(self)
        self._keys.update(held)
        return destroyed

    return planting.attribute(KeyStore, "_destroy_files", other)


def signatures_without_labels() -> AbstractContextManager[None]:
    """Plant signatures of messages that do not say of what kind they are."""
    sign, signed = SigningIdentity.sign_message, PublicIdentity.signed
    return planting.both(
        planting.attribute(
            SigningIdentity, "sign_message", lambda self, _, message: sign(self, b"", message)
        ),
        planting.attribute(
            PublicIdentity,
            "signed",
            lambda self, _, message, signature: signed(self, b"", message, signature),
        ),
    )


def tasks_without_label() -> AbstractContextManager[None]:
    """Plant signatures of tasks that do not say so."""
    sign, signed = SigningIdentity.sign_message, PublicIdentity.signed

    def sign_task(self: SigningIdentity, task_bytes: bytes) -> SignedTask:
        return SignedTask(task_bytes=task_bytes, signature=sign(self, b"", task_bytes))

    def verify(self: PublicIdentity, task: SignedTask) -> None:
        if not signed(self, b"", task.task_bytes, task.signature):
            raise SignatureError("not by the identity pinned here")

    return planting.both(
        planting.attribute(SigningIdentity, "sign", sign_task),
        planting.attribute(PublicIdentity, "verify", verify),
    )


def grpc_may_log() -> AbstractContextManager[None]:
    """Plant services that leave gRPC's log to the environment."""
    return planting.attribute(process, "_silence_grpc", lambda _party: None)


def keys_of_connections_open() -> AbstractContextManager[None]:
    """Plant files of keys for connections that everybody on a machine may read."""
    return planting.attribute(certificates, "_SECRET_FILE", 0o644)


def ledger_open() -> AbstractContextManager[None]:
    """Plant a ledger whose rows can be changed and deleted."""
    schema = re.sub(r"CREATE TRIGGER.*?END;", "", store._SCHEMA, flags=re.DOTALL)
    return planting.attribute(store, "_SCHEMA", schema)


OPERATIONS: Final = (
    Fault(
        name="sentinels-as-users",
        says="sentinels make up for users whom a batch lacks",
        scenario="analyzer-intake",
        check="from n_min users on, sentinels not among them",
        plant=sentinels_make_up_numbers,
    ),
    Fault(
        name="sentinels-charged",
        says="sentinels are charged for as users",
        scenario="analyzer-intake",
        check="charged for the users of its result",
        plant=sentinels_charged,
    ),
    Fault(
        name="all-kept-unjudged",
        says="a shuffler that should sample may keep every report",
        scenario="analyzer-intake",
        check="is suspect with all sentinels",
        plant=all_kept_unjudged,
    ),
    Fault(
        name="sentinels-late",
        says="reports of a batch that is there are registered as sentinels",
        scenario="analyzer-intake",
        check="once the batch has arrived",
        plant=sentinels_registered_late,
    ),
    Fault(
        name="ledger-open",
        says="entries of the ledger can be changed and deleted",
        scenario="analyzer-ledger",
        check="can be changed or deleted as any other row",
        plant=ledger_open,
    ),
    Fault(
        name="setting-unread",
        says="the analyzer's setting of refused reports is not read",
        scenario="startup",
        check="its own setting of refused reports",
        plant=any_share_refused,
    ),
    Fault(
        name="keys-never-destroyed",
        says="services destroy no expired key",
        scenario="startup",
        check="destroys an expired key that no task needs",
        plant=no_key_destroyed,
    ),
    Fault(
        name="analyzer-unrotated",
        says="the analyzer rotates its keys at its start alone",
        scenario="startup",
        check="the analyzer looks after its keys while it runs",
        plant=analyzer_without_rotation,
    ),
    Fault(
        name="shuffler-unrotated",
        says="the shuffler rotates its keys at its start alone",
        scenario="startup",
        check="the shuffler looks after its keys while it runs",
        plant=shuffler_without_rotation,
    ),
    Fault(
        name="failure-ends-rotation",
        says="after one failure no key is rotated any more",
        scenario="startup",
        check="looks again and again, after a failure too",
        plant=one_look_at_keys,
    ),
    Fault(
        name="workers-untold",
        says="workers are not told that a key is destroyed",
        scenario="startup",
        check="are told of a destroyed key",
        plant=workers_untold,
    ),
    Fault(
        name="keys-in-memory",
        says="destroyed keys stay in memory",
        scenario="startup",
        check="no destroyed key stays",
        plant=destroyed_keys_held,
    ),
    Fault(
        name="labels-unsigned",
        says="signatures of messages do not say of what kind",
        scenario="proofs",
        check="believed under it alone",
        plant=signatures_without_labels,
    ),
    Fault(
        name="tasks-unlabelled",
        says="signatures of tasks do not say that it is one",
        scenario="proofs",
        check="no signature of a message is one of a task",
        plant=tasks_without_label,
    ),
    Fault(
        name="grpc-may-log",
        says="gRPC may write a log of its own",
        scenario="startup",
        check="so that it writes none",
        plant=grpc_may_log,
    ),
    Fault(
        name="tls-keys-open",
        says="everybody may read keys of connections",
        scenario="startup",
        check="else may read keys of connections",
        plant=keys_of_connections_open,
    ),
    Fault(
        name="half-a-guarantee",
        says="half of a guarantee is taken for all of it",
        scenario="operators",
        check="promises 2 % more than holds is refused",
        plant=misled.half_a_guarantee_taken,
    ),
    Fault(
        name="ledger-unread",
        says="operators do not verify the ledger",
        scenario="operators",
        check="notices an entry of the ledger that was altered alone",
        plant=misled.ledger_read_unverified,
    ),
    Fault(
        name="pages-apart",
        says="operators verify each page of the ledger by itself",
        scenario="operators",
        check="that was left out",
        plant=misled.ledger_pages_apart,
    ),
    Fault(
        name="plans-for-honest",
        says="plans promise what holds if everybody is honest",
        scenario="operators",
        check="as was wished, over all rounds",
        plant=misled.plans_for_the_honest,
    ),
    Fault(
        name="plans-for-one-round",
        says="plans promise for all rounds what holds for one",
        scenario="operators",
        check="as was wished, over all rounds",
        plant=misled.plans_for_one_round,
    ),
    Fault(
        name="narrow-intervals",
        says="intervals are shown that are narrower than is said",
        scenario="operators",
        check="reaches as far as its confidence",
        plant=misled.narrow_intervals,
    ),
    Fault(
        name="noise-told-apart",
        says="the largest of many noises passes for a value",
        scenario="operators",
        check="is not taken for a value that somebody holds",
        plant=misled.noise_told_apart,
    ),
    Fault(
        name="page-for-everybody",
        says="the network may open a live page",
        scenario="operators",
        check="served to this machine alone",
        plant=misled.page_for_everybody,
    ),
    Fault(
        name="any-task-answered",
        says="a device answers whatever task it is handed",
        scenario="device-rules",
        check="other than was asked for is not answered",
        plant=misled.any_task_answered,
    ),
    Fault(
        name="any-signer",
        says="a device answers whoever signed the task",
        scenario="device-rules",
        check="anybody but the analyzer signed",
        plant=misled.any_signer_believed,
    ),
    Fault(
        name="weights-unchecked",
        says="a device answers with weights that promise less than is claimed",
        scenario="device-rules",
        check="too low for a task's weights",
        plant=misled.weights_unchecked,
    ),
)
