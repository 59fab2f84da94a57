"""Signatures of one kind are believed as none of another, over the same bytes by one identity."""

from typing import Final

from common.crypto.signing import PublicIdentity, SignedTask, SigningIdentity
from common.crypto.tokens import SERIAL_BYTES, TokenIssuer
from common.errors import ProofError as SignatureError
from deploy.audit.checks import Checks

_MESSAGE: Final = b"what is signed, of whatever kind"
_LABELS: Final = (b"", b"one kind", b"One kind", b"another kind")


def check_kinds(checks: Checks) -> None:
    """Take each signature for one of every other kind; keys come from the operating system."""
    identity = SigningIdentity.generate()
    public, task = identity.public_identity(), identity.sign(_MESSAGE)
    for label in _LABELS:
        by = identity.sign_message(label, _MESSAGE)
        checks.must(
            "what is signed under one label is believed under it alone",
            [public.signed(other, _MESSAGE, by) for other in _LABELS]
            == [other == label for other in _LABELS],
        )
        checks.must(
            "no signature of a message is one of a task, nor the other way round",
            not _is_task(public, by) and not public.signed(label, _MESSAGE, task.signature),
        )
    _check_tokens(checks)


def _is_task(public: PublicIdentity, signature: bytes) -> bool:
    try:
        public.verify(SignedTask(task_bytes=_MESSAGE, signature=signature))
    except SignatureError:
        return False
    return True


def _check_tokens(checks: Checks) -> None:
    """A token's signature, and one over its serial by the same key that is of no token."""
    raw = TokenIssuer.generate()
    token, accepts = TokenIssuer(raw).issue(), TokenIssuer(raw).identity().accepts
    serial, identity = token[:SERIAL_BYTES], SigningIdentity(raw)
    others = [identity.sign_message(label, serial) for label in _LABELS]
    checks.must(
        "tokens are of their own kind",
        accepts(token)
        and not any(
            accepts(serial + other) for other in (*others, identity.sign(serial).signature)
        ),
    )
