import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import gmpy2
import pytest

from shuffledp.common import errors
from shuffledp.common.crypto.privacy_tokens import PendingToken
from shuffledp.common.runtime.state_directory import atomic_write
from shuffledp.issuer.core import signing_threads
from shuffledp.issuer.issuance_store import Wanted
from tests.support.faults import Crash, Faults
from tests.support.issuers import CHALLENGE, DAY, SECRETS, IssuerCore, pending

T = TypeVar("T")


async def test_a_person_gets_one_token_of_each_key(core: IssuerCore) -> None:
    """The same message gets the same signature, another is refused; others get their own."""
    keys = [await core.create_key() for _ in range(2)]
    token = pending(keys[0], 1)
    signature = await core.issue(token)

    assert keys[0].is_valid_token(token.finalize(signature), CHALLENGE)
    assert signature == await core.issue(token)
    for _ in range(2):
        with pytest.raises(errors.ConflictError, match="already has a token of this key"):
            await core.issue(pending(keys[0], 2))
    assert signature == await core.issue(token)
    for other, person in ((pending(keys[1], 3), "Ada"), (pending(keys[0], 4), "Bo Li")):
        assert other.finalize(await core.issue(other, person))
    assert {"issued": 3, "repeated": 2, "second message": 2} == core.counts


async def test_nobody_without_a_credential_gets_a_token(core: IssuerCore) -> None:
    """A wrong or empty secret, or a hash from the list, is refused and stored nowhere."""
    token = pending(await core.create_key(), 1)
    for wrong in (b"", bytes(32), sha256(SECRETS["Ada"]).digest(), SECRETS["Ada"] + b"\0"):
        with pytest.raises(errors.CredentialError):
            await core.issuance.issue(token.key.key_id, token.blinded(), wrong)

    assert {"credential": 4} == core.counts
    assert [] == _rows(core)


async def test_a_message_that_cannot_be_signed_spends_nothing(core: IssuerCore) -> None:
    """The person may still send a right one."""
    token = pending(await core.create_key(), 1)
    with pytest.raises(errors.WireError):
        await core.issuance.issue(token.key.key_id, b"\xff" * 256, SECRETS["Ada"])

    assert token.finalize(await core.issue(token))
    assert {"issued": 1, "malformed": 1} == core.counts


async def test_a_key_signs_until_its_end_and_is_then_erased(core: IssuerCore) -> None:
    """Not even a repeat is answered; 30 days later its file and rows go, others stay."""
    ended, other = await core.create_key(), await core.issuance.create_key(2**33)
    tokens = pending(ended, 1), pending(other, 2)
    core.clock.seconds += DAY - 1
    for token in tokens:
        await core.issue(token)
    core.clock.seconds += 1
    with pytest.raises(errors.UnknownKeyError, match="ended at 2001-09-10 01:46:40 UTC"):
        await core.issue(tokens[0])
    core.clock.seconds += 30 * DAY - 1
    await core.issuance.destroy_ended()
    assert 2 == len(core.keys.held())
    core.clock.seconds += 1
    await core.issuance.destroy_ended()
    with pytest.raises(errors.UnknownKeyError, match="no token key of this id"):
        await core.issue(tokens[0])
    with pytest.raises(errors.WireError, match="must be after the present"):
        await core.issuance.create_key(int(core.clock.now()))

    assert {other.key_id.hex()} == core.keys.held()
    assert [f"token-{other.key_id.hex()}.key"] == core.keys._state.names("token-*")
    assert [other.key_id] == [row[0] for row in _rows(core)]
    assert tokens[1].finalize(await core.issue(tokens[1]))


async def test_all_rows_of_an_ended_key_are_erased(
    core: IssuerCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In transactions of a few rows each, and from the write-ahead log too."""
    monkeypatch.setattr("shuffledp.issuer.issuance_store._ROWS_AT_ONCE", 3)
    for key in (b"k", b"l", b"m"):
        await core.store.settle([[_wanted(key, bytes([n])) for n in range(10)]], _sign)
    await core.store.forget_others({b"l".hex()})

    assert [b"l"] * 10 == [row[0] for row in _rows(core)]
    assert 0 == (core.path / "issuer.sqlite-wal").stat().st_size


async def test_of_concurrent_requests_one_message_wins(core: IssuerCore) -> None:
    """Twelve requests with three messages get one signature, and ConflictError otherwise."""
    key = await core.create_key()
    tokens = [pending(key, seed) for seed in range(3)]
    tried = await asyncio.gather(
        *(core.issue(token) for token in tokens * 4), return_exceptions=True
    )

    given = {answer for answer in tried if isinstance(answer, bytes)}
    assert 1 == len(given)
    assert {errors.ConflictError} == {type(one) for one in tried if not isinstance(one, bytes)}
    assert [8, 4] == [core.counts["second message"], 12 - core.counts["second message"]]
    assert 1 == len(_rows(core))


async def test_the_database_holds_no_person_and_links_no_two_keys(core: IssuerCore) -> None:
    """Nothing but keyed hashes, one key each, and what is stored of the message is a hash."""
    tokens = [pending(await core.create_key(), seed) for seed in range(2)]
    for token in tokens:
        await core.issue(token)
    core.store.close()
    stored = (core.path / "issuer.sqlite").read_bytes()

    assert 2 == len({row[1] for row in _rows(core)})
    for name, secret in SECRETS.items():
        for planted in (name.encode(), secret, sha256(secret).digest(), sha256(name.encode())):
            found = planted if isinstance(planted, bytes) else planted.digest()
            assert found not in stored
    assert all(token.blinded() not in stored for token in tokens)
    assert tokens[0].blinded() not in repr(core.keys).encode()
    core.start()


async def test_a_signature_leaves_only_after_it_is_stored(
    core: IssuerCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the disk fails, the device learns no signature, and may send the message again."""
    token = pending(await core.create_key(), 1)

    async def failing(*_: Any) -> NoReturn:
        raise errors.StorageError("the disk of the state directory is full")

    monkeypatch.setattr(core.store, "settle", failing)
    with pytest.raises(errors.StorageError):
        await core.issue(token)
    monkeypatch.undo()
    assert token.finalize(await core.issue(token))


async def test_calls_that_wait_share_a_transaction(
    core: IssuerCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """40 calls take one hand-over to the database; if it fails, each may be sent again."""
    key, settle, transactions = await core.create_key(), core.store.settle, list[int]()
    failures = [errors.StorageError("the disk of the state directory is full")]

    async def counted(calls: Any, sign: Any) -> Any:
        transactions.append(len(calls))
        if failures:
            raise failures.pop()
        return await settle(calls, sign)

    monkeypatch.setattr(core.store, "settle", counted)

    async def ask_all() -> list[Any]:
        people = list(enumerate(SECRETS)) * 20
        calls = (core.issue(pending(key, seed), person) for seed, person in people)
        return await asyncio.gather(*calls, return_exceptions=True)

    assert {errors.StorageError} == set(map(type, await ask_all()))
    assert 2 == len(set(await ask_all()))
    assert [40, 40] == transactions


async def test_a_bulk_call_is_answered_as_single_ones_are(core: IssuerCore) -> None:
    """Its signatures are those of later calls, in order; one of each person, however it is sent."""
    key = await core.create_key()
    ada, bo = pending(key, 1), pending(key, 2)
    given = await core.issue_bulk((ada, "Ada"), (bo, "Bo Li"), (ada, "Ada"))

    assert [await core.issue(ada), await core.issue(bo, "Bo Li"), given[0]] == given
    assert ada.finalize(given[0])
    assert bo.finalize(given[1])
    assert {"issued": 2, "repeated": 3} == core.counts
    with pytest.raises(errors.ConflictError):
        await core.issue_bulk((ada, "Ada"), (pending(key, 3), "Bo Li"))
    assert 2 == len(_rows(core))


async def test_a_bulk_call_with_a_second_message_of_a_person_signs_the_first(
    core: IssuerCore,
) -> None:
    """The call is refused; repeated without the second message, it gets the stored signatures."""
    key = await core.create_key()
    ada, other, bo = (pending(key, seed) for seed in range(3))
    for _ in range(2):
        with pytest.raises(errors.ConflictError):
            await core.issue_bulk((ada, "Ada"), (other, "Ada"), (bo, "Bo Li"))

    assert 2 == len(_rows(core))
    given = await core.issue_bulk((ada, "Ada"), (bo, "Bo Li"))
    assert [await core.issue(ada), await core.issue(bo, "Bo Li")] == given
    assert {"second message": 2, "repeated": 4} == core.counts


async def test_a_bulk_call_with_a_wrong_credential_signs_nothing(core: IssuerCore) -> None:
    """Nor does one with an unknown key, or a message above the modulus."""
    key = await core.create_key()
    good = (key.key_id, pending(key, 1).blinded(), SECRETS["Ada"])
    for wrong, error in (
        ((*good[:2], bytes(32)), errors.CredentialError),
        ((bytes(32), *good[1:]), errors.UnknownKeyError),
        ((key.key_id, b"\xff" * 256, SECRETS["Bo Li"]), errors.WireError),
        ((key.key_id, b"\xff" * 256, SECRETS["Ada"]), errors.WireError),
    ):
        with pytest.raises(error):
            await core.issuance.issue_bulk([good, wrong])

    assert [] == _rows(core)
    assert {"credential": 1, "key": 1, "malformed": 2} == core.counts


async def test_a_message_that_cannot_be_signed_spoils_no_other_of_its_person(
    core: IssuerCore,
) -> None:
    """Both wait for one transaction; the valid one is signed."""
    key = await core.create_key()
    bad = core.issuance.issue(key.key_id, b"\xff" * 256, SECRETS["Ada"])
    refused, given = await asyncio.gather(bad, core.issue(pending(key, 1)), return_exceptions=True)

    assert isinstance(refused, errors.WireError)
    assert isinstance(given, bytes)


@pytest.mark.parametrize("step", [9, pytest.param(1, marks=pytest.mark.slow)])
async def test_no_crash_gives_a_person_two_tokens(tmp_path: Path, step: int) -> None:
    """
    At each boundary, before or after a commit or a change of a key file.

    The device sends its message until it has a signature. Another one never gets one.
    """
    for number in range(0, 50, step):
        faults = await _tried_with_a_crash(tmp_path / str(number), number)
        if not faults.crashes:  # the key's life has fewer boundaries
            break

    assert 15 <= number < 45


async def _tried_with_a_crash(folder: Path, number: int) -> Faults:
    """Live a key's life, with a crash at the boundary of this number."""
    folder.mkdir()
    core = IssuerCore(folder, Faults(countdown=number))
    core.start()
    key = await _until_done(core, core.create_key)
    token, other = pending(key, 1), pending(key, 2)
    both = (token, "Ada"), (pending(key, 3), "Bo Li")
    given = {(await _until_done(core, lambda: core.issue_bulk(*both)))[0] for _ in range(2)}
    given |= {await _until_done(core, lambda: core.issue(token))}
    with pytest.raises(errors.ConflictError):
        await _until_done(core, lambda: core.issue(other))
    core.clock.seconds += 31 * DAY
    await _until_done(core, lambda: core.issuance.check_complete())  # noqa: PLW0108  # a new one
    await _until_done(core, lambda: core.issuance.destroy_ended())  # noqa: PLW0108  # a new one
    rows, held = _rows(core), core.keys.held()
    core.stop()

    assert 1 == len(given)
    assert token.finalize(given.pop())
    assert ([], frozenset()) == (rows, held)
    return core.faults


async def _until_done(core: IssuerCore, work: Callable[[], Awaitable[T]]) -> T:
    """Repeat a call after each crash and restart."""
    while True:
        try:
            return await work()
        except Crash:
            core.stop()
            core.start()


def _wanted(key_id: bytes, person: bytes) -> Wanted:
    return Wanted(key_id=key_id, person=person, request=bytes(32), sign=lambda: b"signature" * 9)


def _sign(wanted: Sequence[Wanted]) -> list[bytes]:
    return [each.sign() for each in wanted]


def _rows(core: IssuerCore) -> list[tuple[bytes, ...]]:
    with sqlite3.connect(core.path / "issuer.sqlite") as connection:
        found = connection.execute("SELECT * FROM issued WHERE person != x''").fetchall()
    connection.close()
    return found


async def test_a_key_that_the_database_does_not_know_stops_the_start(core: IssuerCore) -> None:
    """After the loss of the database everybody would get a second token."""
    await core.create_key()
    await core.issuance.check_complete()
    core.store.close()
    (core.path / "issuer.sqlite").unlink()
    core.start()
    with pytest.raises(errors.SettingsError, match=r"does not know token-\w{64}\.key: it is lost"):
        await core.issuance.check_complete()


async def test_a_token_key_whose_file_is_missing_stops_the_start(core: IssuerCore) -> None:
    """Its rows stay, so that nobody gets a second token once the file is put back."""
    key = await core.create_key()
    signature = await core.issue(pending(key, 1))
    file = core.path / "issuer" / f"token-{key.key_id.hex()}.key"
    kept = file.read_bytes()
    file.unlink()
    core.store.close()
    core.start()
    with pytest.raises(errors.SettingsError, match=r"token-\w{64}\.key is missing"):
        await core.issuance.check_complete()
    atomic_write(file, kept, 0o600)
    core.store.close()
    core.start()
    await core.issuance.check_complete()

    assert signature == await core.issue(pending(key, 1))


async def test_threads_sign_beside_each_other(core: IssuerCore) -> None:
    """GMP releases the interpreter's lock in each of the issuer's threads."""
    with signing_threads(2) as threads:
        found = [threads.submit(lambda: gmpy2.get_context().allow_release_gil) for _ in range(8)]
        assert all(future.result() for future in found)
        token: PendingToken = pending(await core.create_key(), 1)
        key = core.keys.find(token.key.key_id, core.clock.now())
        assert token.finalize(threads.submit(key.signing_key.blind_sign, token.blinded()).result())
