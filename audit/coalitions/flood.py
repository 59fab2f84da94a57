"""
Floods: submissions of one attacker that fill a batch around one person.

An attacker who knows all other reports of a batch subtracts them and keeps the victim's. The
running services show how many submissions one-time tokens let through, and what the issuer and the
shuffler could compare afterwards.
"""

import asyncio
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from numpy.random import Generator

from shuffledp.audit.coalitions.whole_batch import proven_epsilon, user_worlds
from shuffledp.audit.finding import Checks, Finding, Rows, game_row, run_game
from shuffledp.audit.harness.byte_search import words
from shuffledp.audit.harness.services import Services, files_of, secrets_of
from shuffledp.audit.harness.tasks import FAR_FUTURE, sample_draft
from shuffledp.audit.scenario import AuditSubject, Ports
from shuffledp.common.accounting.guarantees import alone_guarantee
from shuffledp.common.crypto.privacy_tokens import MODULUS_BYTES, NONCE_BYTES
from shuffledp.common.crypto.randomness import secure_generator
from shuffledp.common.crypto.signing import SignedTask
from shuffledp.common.errors import PeerRefusalError
from shuffledp.common.messages.submission import Outcome
from shuffledp.common.runtime.rpc import LONG_DEADLINE, reply
from shuffledp.common.task.task import Task
from shuffledp.common.task.token_spec import TokenSpec
from shuffledp.common.wire.submissions import outcomes_from_wire
from shuffledp.deploy.tasks.value_parser import value_of
from shuffledp.protos.shuffledp.v1 import shuffler_pb2, shuffler_pb2_grpc
from shuffledp.user_agent.clients import Issuer, RemoteIssuer
from shuffledp.user_agent.contribution import Contributor
from shuffledp.user_agent.credentials import CredentialFile

_FLOOD: Final = 240
_ENTITLED: Final = 3
"""Persons on the issuer's list whom the attacker bribed or made up."""
_BLINDING_BITS: Final = 1_900
"""A uniform factor below a modulus of 2,048 bits has fewer bits with probability 2^-147."""


def run_flood(subject: AuditSubject, rng: Generator) -> Rows:
    """Flood a batch with and without tokens."""
    if subject.parameters.reduction is not None:
        yield _alone(subject, rng)
    with tempfile.TemporaryDirectory(prefix="shuffledp-flood-") as folder:
        yield from asyncio.run(_flood(Path(folder), subject.ports))


def _alone(subject: AuditSubject, rng: Generator) -> Finding:
    """Run the game on the victim's messages, the only ones that the analyzer does not know."""
    parameters, task, result = subject.parameters, subject.task, None
    claimed = alone_guarantee(parameters, subject.n_users)
    if subject.of_items and task.shuffler.only_permutes:
        trials = int(subject.sizes.games / (1 + task.dummies.expected_per_user))
        result = run_game(*user_worlds(subject, trials, rng), delta=claimed.delta)
    who = "The issuer and the analyzer" if task.tokens else "Anybody, and the analyzer alone,"
    return game_row(
        claimed=claimed,
        exact=proven_epsilon(parameters, 1, 1),
        result=result,
        title="All other users made up",
        sentence=f"{who} can fill a batch with submissions that they know. What is left is yours: "
        "only your own noise and dummies, and the shuffler's, protect you.",
        advice="Let an organization apart from the analyzer's operate the issuer."
        if task.tokens
        else "Require one-time tokens, with --token-key: default devices refuse this task.",
    )


async def _flood(folder: Path, ports: Ports) -> Rows:
    """Flood the running services; return the findings on what they stored and could compare."""
    services = Services(folder, [f"accomplice {number}" for number in range(_ENTITLED)])
    rng = secure_generator()
    await services.start_analyzer()
    await services.start_shuffler()
    await services.start_issuer()
    try:
        open_to_all = await _submit(services, await _publish(services, None), [b""], rng)
        spec = await services.create_token_key(FAR_FUTURE)
        signed = await _publish(services, spec)
        key, challenge = spec.token_key(), spec.challenge(signed.digest())
        head = key.signed_part(challenge, b"")
        public = [signed.task_bytes, key.der, head, *_files(services, "issuer", "shuffler")]
        tokens, asked, factors, second = [], [], [], 0
        async with services.channel("issuer", services.issuer.address) as channel:
            issuer: Issuer = RemoteIssuer(channel)
            for credential in CredentialFile(services.credentials).all():
                pending, other = (ports.draw_token(key, challenge, rng.bytes) for _ in range(2))
                blinded = pending.blinded()
                signature = await issuer.issue(key.key_id, blinded, credential)
                tokens.append(pending.finalize(signature))
                asked += [blinded, signature, credential]
                with suppress(PeerRefusalError):
                    await issuer.issue(key.key_id, other.blinded(), credential)
                    second += 1
                unblinded = int.from_bytes(tokens[-1][-MODULUS_BYTES:])
                inverse = pow(unblinded, -1, key.modulus)
                factors.append(int.from_bytes(signature) * inverse % key.modulus)
        # Nonces of their own, so that only their signatures tell them from tokens.
        heads = [key.signed_part(challenge, rng.bytes(NONCE_BYTES)) for _ in tokens]
        forged = [head + rng.bytes(MODULUS_BYTES) for head in heads]
        stored = await _submit(services, signed, [*tokens, *forged, b""], rng)
        stored += await _submit(services, signed, tokens, rng)  # all of them are spent
        public_words = words(public, key.key_id)
        # A factor links the signatures of a request and its token, unless blinding makes it random.
        hidden = {factor for factor in factors if factor.bit_length() > _BLINDING_BITS}
        return (
            *_stored(stored, open_to_all, second),
            *_unlinked(
                [*_files(services, "issuer"), *asked],
                [*_files(services, "shuffler"), *tokens],
                lambda held: words(held, key.key_id) - public_words,
                blinded=len(hidden) == _ENTITLED,
            ),
        )
    finally:
        await services.stop()


async def _publish(services: Services, tokens: TokenSpec | None) -> SignedTask:
    """Publish a task that the flood and the victim together fill."""
    size = _FLOOD + 1
    fields = {"domain_size": 2, "local_epsilon": 1.0, "n_min": size, "target_size": size}
    draft = services.keyed(sample_draft(protocol="sh", tokens=tokens, **fields))
    async with services.operator() as operator:
        signed, _ = await operator.publish_task(draft)
    return signed


async def _submit(
    services: Services, signed: SignedTask, tokens: Sequence[bytes], rng: Generator
) -> int:
    """Send the flood, each token many times; return how many submissions were stored."""
    task = Task.from_bytes(signed.task_bytes)
    contributor = Contributor(task, signed.digest())
    request = shuffler_pb2.SubmitBulkRequest(
        task_digest=signed.digest(),
        envelopes=[contributor.prepare(value_of(task, 0), rng).envelope for _ in range(_FLOOD)],
        tokens=[tokens[number % len(tokens)] for number in range(_FLOOD)],
    )
    async with services.channel("shuffler", services.shuffler.address) as channel:
        call = shuffler_pb2_grpc.ShufflerStub(channel).SubmitBulk(request, timeout=LONG_DEADLINE)
        return Counter(outcomes_from_wire(await reply(call, "the shuffler")))[Outcome.STORED]


def _files(services: Services, *parties: str) -> list[bytes]:
    """Return the parties' files, the sealed ones in plain too."""
    found: list[bytes] = []
    for state in (services.directory / party for party in parties):
        found += [*files_of(state).values(), *secrets_of(state, "*-*.key").values()]
    return found


def _stored(stored: int, open_to_all: int, second: int) -> Iterator[Finding]:
    """Check the numbers stored with and without tokens, and of second tokens for one person."""
    row = partial(
        Checks.finding, coalition="analyzer+users", heading="sender disruption", trials=_FLOOD
    )
    checks, without = Checks(), Checks()
    checks.require("a token lets through one submission", stored == _ENTITLED)
    checks.require("nobody gets a second token", second == 0)
    yield row(
        checks,
        title=f"A flood of {_FLOOD} submissions with {_ENTITLED} tokens",
        sentence=f"An attacker who is entitled to {_ENTITLED} tokens gets {_ENTITLED} submissions "
        "into the batch: spent, forged and missing tokens are refused, and so are requests for "
        "second tokens.",
        expected=_ENTITLED,
        measured=stored,
    )
    without.require("each submission without tokens is stored", open_to_all == _FLOOD)
    yield row(
        without,
        title=f"A flood of {_FLOOD} submissions without tokens",
        sentence="Where a task requires no tokens, every submission of the attacker counts as a "
        "user, and fills the batch around one person.",
        known_limit=True,
        expected=_FLOOD,
        measured=open_to_all,
    )


def _unlinked(
    issuer: Sequence[bytes],
    shuffler: Sequence[bytes],
    secret_words: Callable[[Sequence[bytes]], set[bytes]],
    *,
    blinded: bool,
) -> Iterator[Finding]:
    """Check that no string links what the issuer holds to what the shuffler holds, tokens last."""
    own, checks, tokens = Checks(), Checks(), shuffler[-_ENTITLED:]
    signed = b"".join(issuer)
    nonces = {token[2 : 2 + NONCE_BYTES] for token in tokens}
    own.require("no nonce reached it", not any(nonce in signed for nonce in nonces))
    own.require("each request is blinded", blinded)
    yield own.finding(
        title="Issuer: what it signed",
        coalition="issuer",
        sentence="The issuer knows who asked for a token of which task. It signed blinded "
        "messages, which fit every token equally well, and holds no report.",
        trials=_ENTITLED,
    )
    known = secret_words(shuffler)
    shared = secret_words(issuer) & known
    checks.require("issuer and shuffler share no string", not shared)
    checks.require("each request is blinded", blinded)
    planted = secret_words([*issuer, tokens[-1]]) & known
    checks.require("a planted token is found", bool(planted))
    yield checks.finding(
        title="Issuer and shuffler: requests and tokens",
        coalition="issuer+shuffler",
        sentence="All files and messages of both have no string of 8 bytes in common that the "
        "task does not show everybody: nothing links a request to a spent token.",
        trials=_ENTITLED,
    )
