"""Calls that wait are committed together, and none waits for ever."""

import asyncio
from collections.abc import Sequence

import pytest

from shuffledp.common.runtime.shared_calls import GroupCommit


async def _appended(commit: GroupCommit[str, int]) -> list[int | BaseException]:
    async with asyncio.timeout(5):
        calls = (commit.append(call) for call in ("a", "bb", "ccc"))
        return await asyncio.gather(*calls, return_exceptions=True)


async def test_each_call_gets_its_result() -> None:
    """The three calls of one turn share a commit."""
    together = []

    async def commit(calls: Sequence[str]) -> list[int]:
        together.append(len(calls))
        return list(map(len, calls))

    assert [1, 2, 3] == await _appended(GroupCommit(commit))
    assert [3] == together


@pytest.mark.parametrize("answers", [[1], [1, 2, 3, 4]])
async def test_too_few_or_many_results_are_an_error_of_every_call(answers: list[int]) -> None:
    """No call gets another one's result."""

    async def commit(_: Sequence[str]) -> list[int]:
        return answers

    assert [ValueError] * 3 == list(map(type, await _appended(GroupCommit(commit))))


async def test_a_cancelled_commit_ends_every_call_and_itself() -> None:
    """It does not go on with the calls that came after it."""

    async def commit(_: Sequence[str]) -> list[int]:
        raise asyncio.CancelledError

    gathered = GroupCommit[str, int](commit)
    found = await _appended(gathered)

    assert [asyncio.CancelledError] * 3 == list(map(type, found))
    assert gathered._committing is not None
    assert gathered._committing.cancelled()
