import pytest

from shuffledp.analyzer.storage import task_table
from shuffledp.analyzer.storage.task_table import Sentinel
from shuffledp.common.errors import BatchStateError, WireError
from tests.support.analyzer_core import AnalyzerCore
from tests.support.leaves import some_leaves


@pytest.fixture
async def analyzer(core: AnalyzerCore) -> AnalyzerCore:
    """A started analyzer with a task that has room for five sentinels of two reports."""
    await core.publish(n_min=3, target_size=8)
    return core


def _sentinels(count: int, start: int = 0) -> list[bytes]:
    leaves = some_leaves(2 * count, start)
    return [b"".join(leaves[2 * number : 2 * number + 2]) for number in range(count)]


async def _register(
    analyzer: AnalyzerCore, sentinels: list[bytes], *, acknowledged: bool = False
) -> None:
    digest = analyzer.signed.digest()
    await analyzer.registry.register_sentinels(digest, sentinels, acknowledged=acknowledged)


async def _registered(analyzer: AnalyzerCore) -> list[Sentinel]:
    return await analyzer.store.run(task_table.sentinels, analyzer.signed.digest())


async def test_sentinels_keep_their_order_and_survive_a_restart(analyzer: AnalyzerCore) -> None:
    """Registering them again changes nothing; acknowledged ones stay acknowledged."""
    planned = _sentinels(4)
    await _register(analyzer, planned)
    await _register(analyzer, planned[2:3], acknowledged=True)
    await _register(analyzer, planned)
    await analyzer.restart()

    assert [False, False, True, False] == [one.acknowledged for one in await _registered(analyzer)]
    assert planned == [b"".join(one.leaves) for one in await _registered(analyzer)]


async def test_sentinels_are_registered_before_the_batch(analyzer: AnalyzerCore) -> None:
    """Repeating a registration afterwards is no error."""
    planned = _sentinels(2)
    await _register(analyzer, planned)
    await analyzer.deliver_parts(analyzer.manifest(8), analyzer.sealed(8))

    await _register(analyzer, planned)
    for late, acknowledged in ((_sentinels(1, start=50), False), (planned, True)):
        with pytest.raises(BatchStateError, match="has arrived"):
            await _register(analyzer, late, acknowledged=acknowledged)
    await analyzer.settle()


async def test_the_number_of_sentinels_is_limited(analyzer: AnalyzerCore) -> None:
    """A batch filled with them would hold too few users; a call is refused as a whole."""
    await _register(analyzer, _sentinels(3))
    with pytest.raises(BatchStateError, match=r"would have 6 sentinels; .* room for 5"):
        await _register(analyzer, _sentinels(3, start=50))

    assert 3 == len(await _registered(analyzer))


@pytest.mark.parametrize("leaves", [some_leaves(1), some_leaves(3)])
async def test_a_sentinel_has_as_many_reports_as_a_submission(
    analyzer: AnalyzerCore, leaves: list[bytes]
) -> None:
    """A submission of this task has two reports."""
    with pytest.raises(WireError, match="a submission of this task has 2 reports"):
        await _register(analyzer, [b"".join(leaves)])


async def test_a_leaf_belongs_to_one_sentinel(analyzer: AnalyzerCore) -> None:
    """No registration may repeat a leaf, in the same call or a later one."""
    [first, second] = some_leaves(2)
    await _register(analyzer, [first + second])
    for shared, times in ((first + some_leaves(1, 50)[0], 1), (second + first, 2)):
        with pytest.raises(WireError, match=f"{times} leaves are repeated"):
            await _register(analyzer, [*_sentinels(1, start=70), shared])

    assert [(first, second)] == [one.leaves for one in await _registered(analyzer)]
