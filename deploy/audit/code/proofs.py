"""What is signed: believed from whom, and of what, it is; and what a device concludes from it."""

import dataclasses
from typing import Any, Final

import numpy as np

from common.crypto.merkle import SALT_BYTES, Tree, leaf
from common.crypto.signing import PublicIdentity, SignedTask, SigningIdentity
from common.errors import ProofError as SignatureError
from common.messages.batch import BatchId
from common.messages.inclusion_proof import BatchCommitment, InclusionProof
from common.task_digest import DIGEST_BYTES, TaskDigest
from deploy.audit.audited import Audited
from deploy.audit.checks import Checks
from deploy.audit.code.buckets import believed, check_buckets
from deploy.audit.code.kinds import check_kinds
from deploy.audit.finding import Outcome
from deploy.audit.raw_bytes import changed
from user_agent.evidence import Inclusion
from user_agent.inclusion_monitor import MOST_ASKED, conclusion, counted, to_ask

_BLOCK: Final = 32
_SIGNED: Final = 6_000
"""Bytes of what is signed in a task's place, and at how many of them it is changed."""
_PLACES: Final = 201
_ASKED: Final = 70
"""Times that a device asks; after so many hardly a report has not come up."""


def play_proofs(audited: Audited, rng: np.random.Generator) -> Outcome:
    """Check them all; little is drawn."""
    del audited
    checks = Checks()
    _check_signatures(checks, rng)
    check_kinds(checks)
    _check_commitment(checks, rng)
    check_buckets(checks, rng)
    _check_inclusion(checks, rng)
    finding = checks.finding(
        scenario="proofs",
        title="Signatures, and proofs of having been counted",
        heading="correctness",
        sentence="What was changed anywhere, or signed by another, under another label, for "
        "another task or of another shape, was not believed; a device noticed one lost report; "
        "and the shuffler answered in one length, whichever bucket of some hundreds of reports "
        "was asked for, compared what the analyzer had signed with what it had sent, and deleted "
        "it in time.",
        advice="Do not collect with this version.",
    )
    return Outcome(findings=(finding,))


def _check_signatures(checks: Checks, rng: np.random.Generator) -> None:
    """Change a signed task at its ends, and at places all over it."""
    identity = SigningIdentity.generate()
    public, signed = identity.public_identity(), identity.sign(rng.bytes(_SIGNED))
    checks.must("what was signed is believed", _task_believed(public, signed))
    for place in np.linspace(0, _SIGNED - 1, _PLACES).astype(int).tolist():
        other = dataclasses.replace(signed, task_bytes=changed(signed.task_bytes, place))
        checks.must("a task changed anywhere is not believed", not _task_believed(public, other))
    label, message = b"label", rng.bytes(_SIGNED)
    by = identity.sign_message(label, message)
    checks.must(
        "a message changed at an end is not believed",
        public.signed(label, message, by)
        and not public.signed(label, changed(message, 0), by)
        and not public.signed(label, changed(message, _SIGNED - 1), by),
    )


def _task_believed(identity: PublicIdentity, signed: SignedTask) -> bool:
    try:
        identity.verify(signed)
    except SignatureError:
        return False
    return True


def _check_commitment(checks: Checks, rng: np.random.Generator) -> None:
    """Change what the analyzer signed of a batch, field by field."""
    identity, digest = SigningIdentity.generate(), TaskDigest(bytes(DIGEST_BYTES))
    salt = rng.bytes(SALT_BYTES)
    one, other = (
        Tree.over(bytearray(b"".join(leaf(rng.bytes(_BLOCK)) for _ in range(50))), salt)
        for _ in range(2)
    )
    signed = BatchCommitment.sign(identity, digest, BatchId(bytes(16)), one, salt)
    forged: dict[str, Any] = {
        "task_digest": TaskDigest(changed(digest, 0)),
        "batch_id": BatchId(changed(signed.batch_id, 15)),
        "n_leaves": signed.n_leaves + 1,
        "bits": signed.bits + 1,
        "salt": changed(salt, SALT_BYTES - 1),
        "root": other.root,
        "signature": changed(signed.signature, 0),
    }
    public = identity.public_identity()
    checks.must("what the analyzer signed of a batch is believed", believed(signed, public, digest))
    checks.must(
        "every field of it is changed",
        list(forged) == [field.name for field in dataclasses.fields(signed)],
    )
    for name, value in forged.items():
        other_one = dataclasses.replace(signed, **{name: value})
        checks.must(
            f"what the analyzer signed is not believed with another {name}",
            not believed(other_one, public, other_one.task_digest),
        )


def _check_inclusion(checks: Checks, rng: np.random.Generator) -> None:
    """A device whose one report is not in the signed tree concludes that it is missing."""
    own = [leaf(rng.bytes(_BLOCK)) for _ in range(5)]
    others = [leaf(rng.bytes(_BLOCK)) for _ in range(50)]
    cases = {
        "a device whose reports all arrived finds them": (own, Inclusion.COUNTED),
        "a device misses one report of several": (own[:-1], Inclusion.MISSING),
        "a device misses all of its reports": ([], Inclusion.MISSING),
        "a device misses all of its reports but one": (own[:1], Inclusion.MISSING),
    }
    for what, (arrived, found) in cases.items():
        checks.must(what, _concluded(own, [*arrived, *others], rng) is found)
    many = [leaf(number.to_bytes(_BLOCK)) for number in range(3 * MOST_ASKED)]
    asked = [to_ask(b"".join(many), rng) for _ in range(_ASKED)]
    checks.must(
        "of more reports than a device asks for it draws each time which, and in which order",
        set().union(*asked) == set(many)
        and all(len(set(one)) == MOST_ASKED for one in asked)
        and len({one[0] for one in asked}) > 1,
    )


def _concluded(own: list[bytes], arrived: list[bytes], rng: np.random.Generator) -> Inclusion:
    """Ask as a device does, of a batch in which these leaves stand."""
    identity, digest = SigningIdentity.generate(), TaskDigest(bytes(DIGEST_BYTES))
    salt = rng.bytes(SALT_BYTES)
    tree = Tree.over(bytearray(b"".join(arrived)), salt)
    commitment = BatchCommitment.sign(identity, digest, BatchId(bytes(16)), tree, salt)
    public = identity.public_identity()
    return conclusion(
        [
            counted(
                one,
                InclusionProof.of(tree, commitment, commitment.prefix_of(one)),
                commitment,
                public,
                digest,
            )
            for one in to_ask(b"".join(own), rng)
        ]
    )
