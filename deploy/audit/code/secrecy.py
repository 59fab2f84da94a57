"""What is secret: keys, seals and tokens, for whom they open, and what they show of themselves."""

from typing import Final

import numpy as np

from common.crypto.hpke import HpkePrivateKey, SealContext, envelope_context, report_context
from common.crypto.suites import SUITES
from common.task_digest import DIGEST_BYTES, TaskDigest
from deploy.audit.audited import Audited
from deploy.audit.checks import Checks
from deploy.audit.code.credentials import check_credentials
from deploy.audit.code.directory import check_directories
from deploy.audit.code.key_rules import check_keys
from deploy.audit.finding import Outcome
from deploy.audit.raw_bytes import changed

_BLOCK: Final = 32


def play_secrets(audited: Audited, rng: np.random.Generator) -> Outcome:
    """Check them all; keys come from the operating system."""
    del audited, rng
    checks = Checks()
    _check_seals(checks)
    check_keys(checks)
    check_credentials(checks)
    check_directories(checks)
    finding = checks.finding(
        scenario="secrets",
        title="Keys, seals and tokens",
        heading="anonymity",
        sentence="Seals opened for whom and what they are made alone, and at their own place; "
        "keys, nonces and tokens were drawn afresh while all clocks stood, and destroyed when "
        "that was due; callers were let in by the name of their certificate and the whole of "
        "their token; and secrets were closed to others, and showed nothing when they were "
        "printed.",
        advice="Do not collect with this version.",
    )
    return Outcome(findings=(finding,))


def _check_seals(checks: Checks) -> None:
    digest, other = (TaskDigest(bytes([byte]) * DIGEST_BYTES) for byte in (1, 2))
    for suite, spec in SUITES.items():
        key, stranger = HpkePrivateKey.generate(suite), HpkePrivateKey.generate(suite)
        public, text = key.public_key(), b"content"
        sealed, again = (public.seal(text, report_context(digest)) for _ in range(2))
        wrong: dict[str, tuple[HpkePrivateKey, SealContext, bytes]] = {
            "a report opens as no envelope": (key, envelope_context(digest), sealed),
            "a report of one task opens as none of another": (key, report_context(other), sealed),
            "a report opens with no other key": (stranger, report_context(digest), sealed),
        }
        for what, (opens, context, bytes_) in wrong.items():
            checks.must(what, opens.opener(context)(bytes_) is None)
        envelope = public.seal(text, envelope_context(digest))
        checks.must(
            "an envelope opens as no report", key.opener(report_context(digest))(envelope) is None
        )
        opens_it = key.opener(report_context(digest))
        checks.must(
            "a report that was changed does not open",
            all(opens_it(changed(sealed, place)) is None for place in (0, len(sealed) - 1)),
        )
        checks.must("what was sealed opens in every suite", opens_it(sealed) == text)
        checks.must("no two seals of one content are the same", not _share(sealed, again))
        checks.must(
            "a seal is as long as its suite says", len(sealed) - len(text) == spec.overhead_bytes
        )
        checks.must("two keys share no part", not _share(public.raw, stranger.public_key().raw))


def _share(one: bytes, other: bytes) -> bool:
    """Say whether two byte strings have a whole block in common, at one place."""
    ends = range(_BLOCK, len(one) + 1, _BLOCK)
    return any(one[end - _BLOCK : end] == other[end - _BLOCK : end] for end in ends)
