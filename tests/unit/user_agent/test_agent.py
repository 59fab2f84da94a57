import asyncio
import dataclasses
import math
import sqlite3
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from common.crypto.tokens import TOKEN_BYTES, TokenIssuer
from common.errors import (
    BudgetError,
    PeerError,
    PeerRefusalError,
    PolicyError,
    SettingsError,
    ValueRangeError,
    WireError,
)
from tests.support.devices import agent_of
from tests.support.policies import generous
from tests.support.shufflers import MemoryShuffler
from tests.support.tasks import published
from user_agent.agent import Agent
from user_agent.budget import SubmissionState
from user_agent.credentials import TokenFile

_CASE = published()
_DIGEST = _CASE.signed.digest()


@pytest.fixture
def shuffler() -> MemoryShuffler:
    """It publishes the task, and takes what comes."""
    return MemoryShuffler(_CASE.signed)


@pytest.fixture
def agent(tmp_path: Path, shuffler: MemoryShuffler) -> Iterator[Agent]:
    """One person's."""
    made = agent_of(tmp_path, _CASE, shuffler)
    yield made
    made.budget.close()


async def test_a_retry_sends_the_same_bytes(tmp_path: Path) -> None:
    """After a failure to send, and after a restart: randomizing again would spend ε again."""
    shuffler = MemoryShuffler(_CASE.signed)
    shuffler.reachable = False
    agent = agent_of(tmp_path, _CASE, shuffler)
    with pytest.raises(PeerError):
        await agent.contribute(_DIGEST, 3, "")
    [saved] = await agent.budget.pending()
    agent.budget.close()

    shuffler.reachable = True
    agent = agent_of(tmp_path, _CASE, shuffler)
    await agent.resend_pending()

    assert [saved.envelope] == shuffler.received
    assert await agent.budget.pending() == []
    agent.budget.close()


async def test_who_answers_again_is_told_whether_it_had_arrived(
    agent: Agent, shuffler: MemoryShuffler
) -> None:
    """What had not is sent by that call; what had is not."""
    shuffler.reachable = False
    with pytest.raises(PeerError):
        await agent.contribute(_DIGEST, 3, "")
    shuffler.reachable = True
    late, again = [await agent.contribute(_DIGEST, 3, "") for _ in range(2)]

    assert [(True, True), (True, False)] == [(told.repeated, told.sent) for told in (late, again)]


async def test_the_answer_is_saved_before_it_is_sent(
    agent: Agent, shuffler: MemoryShuffler
) -> None:
    """The spend and the sealed bytes are on the disk when the shuffler first sees them."""
    found: list[SubmissionState] = []

    async def look(digest: object, envelope: bytes, token: bytes = b"") -> bytes:  # noqa: ARG001  # as the real one
        saved = await agent.budget.find("", _DIGEST)
        assert digest == _DIGEST
        assert saved is not None
        assert envelope == saved.envelope
        found.append(saved.state)
        return b""

    shuffler.submit = look  # type: ignore[method-assign]
    receipt = await agent.contribute(_DIGEST, 3, "")

    assert [SubmissionState.PENDING] == found
    assert _CASE.task.local_epsilon == receipt.local_epsilon


async def test_a_task_is_answered_once(agent: Agent, shuffler: MemoryShuffler) -> None:
    """A second call neither randomizes nor sends; its value is not used."""
    first = await agent.contribute(_DIGEST, 3, "")
    second = await agent.contribute(_DIGEST, 4, "")

    assert (False, True) == (first.repeated, second.repeated)
    assert len(shuffler.received) == 1


async def test_calls_at_the_same_time_send_one_answer(
    agent: Agent, shuffler: MemoryShuffler
) -> None:
    """The first one saved is the one that counts."""
    receipts = await asyncio.gather(*(agent.contribute(_DIGEST, value, "") for value in range(5)))

    assert len(set(shuffler.received)) == 1
    assert [False, True, True, True, True] == sorted(receipt.repeated for receipt in receipts)


async def test_a_refusal_is_final_and_the_spend_stands(
    agent: Agent, shuffler: MemoryShuffler
) -> None:
    """It is passed on, and not sent again by itself."""
    shuffler.closed = True
    with pytest.raises(PeerRefusalError) as caught:
        await agent.contribute(_DIGEST, 3, "")
    saved = await agent.budget.find("", _DIGEST)

    assert caught.value.status == "FAILED_PRECONDITION"
    assert saved is not None
    assert SubmissionState.REFUSED is saved.state
    assert await agent.budget.pending() == []


async def test_one_agent_is_one_person_unless_configured(
    agent: Agent, shuffler: MemoryShuffler
) -> None:
    """A name is refused, before anything is fetched."""
    with pytest.raises(WireError, match="one person"):
        await agent.contribute(_DIGEST, 3, "someone else")
    assert shuffler.fetched == 0

    agent.several_persons = True
    await agent.contribute(_DIGEST, 3, "one")
    await agent.contribute(_DIGEST, 3, "two")
    assert len(set(shuffler.received)) == 2
    with pytest.raises(WireError, match="say by name"):
        await agent.contribute(_DIGEST, 3, "")


async def test_an_infinite_spend_is_kept(tmp_path: Path) -> None:
    """A task without local noise gives everything away to who colludes, and the file says so."""
    case = published(local_epsilon=math.inf, dummies_per_user=100)
    policy = generous(case.identity.public_identity(), local_epsilon_cap=math.inf)
    agent = agent_of(tmp_path, case, MemoryShuffler(case.signed), policy=policy)
    receipt = await agent.contribute(case.signed.digest(), 3, "")
    saved = await agent.budget.find("", case.signed.digest())

    assert math.inf == receipt.local_epsilon
    assert saved is not None
    assert math.inf == saved.claim.local_epsilon
    agent.budget.close()


async def test_a_refused_value_spends_nothing(agent: Agent, shuffler: MemoryShuffler) -> None:
    """Nothing is saved, nothing is sent."""
    with pytest.raises(ValueRangeError):
        await agent.contribute(_DIGEST, 100, "")

    assert await agent.budget.find("", _DIGEST) is None
    assert shuffler.received == []


_COLUMNS = {
    "submissions": [
        *("person", "task_digest", "envelope", "local_epsilon", "state"),
        *("central_epsilon", "delta"),
    ],
    "evidence": [
        *("person", "task_digest", "leaves", "deadline", "inclusion", "receipt"),
        "receipt_verified",
    ],
    "lasting_secret": ["fingerprint"],
}
"""All that a device keeps: a column that is added here has been looked at for values."""


_WIDE = published(domain_size=10_000_000, buckets=251)
"""So many items that a value is found by chance in few bytes only."""


async def test_no_column_could_hold_a_true_value_and_no_cell_does(tmp_path: Path) -> None:
    """In any table of the device's database."""
    value = 9_867_531
    agent = agent_of(tmp_path, _WIDE, MemoryShuffler(_WIDE.signed))
    await agent.contribute(_WIDE.signed.digest(), value, "")
    assert await agent.budget.recognises(b"f" * 32)
    agent.budget.close()
    connection = sqlite3.connect(tmp_path / "budget.sqlite")
    names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master")]
    read = {name: connection.execute(f"SELECT * FROM {name}") for name in names}  # noqa: S608  # no input
    columns = {name: [column[0] for column in rows.description] for name, rows in read.items()}
    rows = [row for table in read.values() for row in table]
    connection.close()

    assert columns == _COLUMNS
    assert len(columns) == len(rows)
    assert not [cell for row in rows for cell in row if cell == value or str(value) in str(cell)]


async def test_no_true_value_is_ever_stored(tmp_path: Path) -> None:
    """
    In no byte of the files, in any likely form: neither while the device runs, where the log of the
    database still has what was overwritten, nor afterwards.
    """
    found = []
    # Two values: three bytes among the ciphertexts' are found by chance once in 30,000 times, in
    # the same form of both with probability 2e-9.
    for value in (9_867_531, 7_135_246):
        shuffler, path = MemoryShuffler(_WIDE.signed), tmp_path / str(value)
        path.mkdir()
        agent = agent_of(path, _WIDE, shuffler)
        await agent.contribute(_WIDE.signed.digest(), value, "")
        stored = _bytes_in(path)
        # The look is at the right place: the envelope is there.
        assert shuffler.received[0] in stored
        agent.budget.close()
        stored += _bytes_in(path)
        found.append({name for name, form in _forms(value).items() if form in stored})

    assert not set.intersection(*found)


def _bytes_in(path: Path) -> bytes:
    """All files of a folder: the database, and its log while it is open."""
    return b"".join(file.read_bytes() for file in path.iterdir())


def _forms(value: int) -> dict[str, bytes]:
    """What a value is likely to be written as; in three bytes by SQLite."""
    layouts = ("<I", ">I", "<Q", ">Q", "<f", ">f", "<d", ">d")
    low = [value >> shift & 127 | 128 for shift in (0, 7, 14)]
    return {
        **{layout: struct.pack(layout, value) for layout in layouts},
        "three bytes": value.to_bytes(3),
        "three bytes, little end first": value.to_bytes(3, "little"),
        "varint": bytes([*low, value >> 21]),
        "decimal": str(value).encode(),
        "hexadecimal": f"{value:x}".encode(),
        "hexadecimal, upper case": f"{value:X}".encode(),
    }


async def test_a_task_over_what_is_left_is_not_answered(
    agent: Agent, shuffler: MemoryShuffler
) -> None:
    """Nothing is drawn, saved or sent; the generator has not moved."""
    agent.policy = dataclasses.replace(agent.policy, total_central_epsilon_cap=0.5)
    with pytest.raises(BudgetError, match=r"total_central_epsilon_cap is 0\.5"):
        await agent.contribute(_DIGEST, 3, "")

    assert [] == shuffler.received
    assert [] == await agent.budget.pending()
    assert np.random.default_rng(1).random() == agent.rng.random()


async def test_a_confirmed_claim_is_remembered_by_its_digest_alone(agent: Agent) -> None:
    """The next person's answer does not compute it again; another task is computed afresh."""
    agent.several_persons = True
    for person in ("one", "two"):
        await agent.contribute(_DIGEST, 3, person)
    assert [_DIGEST] == list(agent._confirmed)

    cheating = dataclasses.replace(_CASE.task, central_epsilon=0.01)
    signed = _CASE.identity.sign(cheating.to_bytes())
    shuffler = MemoryShuffler(signed)
    agent.shuffler = shuffler
    for _ in range(2):
        with pytest.raises(PolicyError, match="do not keep its claim of central epsilon"):
            await agent.contribute(signed.digest(), 3, "one")
    assert [] == shuffler.received


async def test_an_answer_waits_for_its_token(
    agent: Agent, shuffler: MemoryShuffler, tmp_path: Path
) -> None:
    """Refused for want of one, it is kept, and sent as it is once the file holds the right one."""
    issuer = TokenIssuer(TokenIssuer.generate())
    file = tmp_path / "tokens"
    shuffler.token = issuer.issue()
    file.write_text(issuer.issue().hex() + "\n", encoding="ascii")
    agent.tokens = TokenFile(file)
    with pytest.raises(PeerRefusalError, match="a token is asked for"):
        await agent.contribute(_DIGEST, 3, "")
    [saved] = await agent.budget.pending()
    file.write_text(shuffler.token.hex() + "\n", encoding="ascii")
    await agent.resend_pending()

    assert [saved.envelope] == shuffler.received
    assert await agent.budget.pending() == []


def test_each_person_has_a_token_of_their_own(tmp_path: Path) -> None:
    """By the name behind it; whoever has none gets none."""
    file = tmp_path / "tokens"
    one, two = bytes(TOKEN_BYTES), bytes([1]) * TOKEN_BYTES
    file.write_text(f"{one.hex()} Ada L\n\n{two.hex()}\n", encoding="utf-8")

    assert one == TokenFile(file).token("Ada L")
    assert two == TokenFile(file).token("")
    assert TokenFile(file).token("Bob") == b""
    assert TokenFile(None).token("Ada L") == b""


def test_an_operators_tokens_keep_their_order_and_count_once(tmp_path: Path) -> None:
    """A line each; a person's own, with their name, is nobody else's, and is not repeated."""
    file = tmp_path / "tokens"
    one, two = bytes(TOKEN_BYTES), bytes([1]) * TOKEN_BYTES
    file.write_text(f"{two.hex()}\n\n{one.hex()}\n{two.hex()}\n", encoding="utf-8")

    assert [two, one] == TokenFile(file).tokens()
    file.write_text(f"{one.hex()}\n{two.hex()} Ada\n", encoding="utf-8")
    with pytest.raises(SettingsError, match=r"^line 2 of tokens\.txt holds no token") as caught:
        TokenFile(file, "tokens.txt").tokens()
    assert "Ada" not in str(caught.value)


@pytest.mark.parametrize("text", ["00", "no digits", "00" * (TOKEN_BYTES + 1)])
def test_a_line_without_a_token_is_named_and_not_repeated(tmp_path: Path, text: str) -> None:
    """It may hold a secret that was put into the wrong file."""
    file = tmp_path / "tokens"
    file.write_text(f"{text.split(maxsplit=1)[0]}\n", encoding="ascii")

    with pytest.raises(SettingsError, match="line 1 of token_file holds no token") as caught:
        TokenFile(file).token("")
    assert text not in str(caught.value)
