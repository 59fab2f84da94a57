import pytest

from common.crypto.signing import SigningIdentity
from common.errors import ProofError
from common.messages.inclusion_proof import InclusionProof
from common.task_digest import TaskDigest
from tests.support.leaves import commitment_over, some_leaves, tree_over
from user_agent.evidence import InclusionState
from user_agent.inclusion_monitor import conclusion, counted

_DIGEST = TaskDigest(b"d" * 32)
_ANALYZER = SigningIdentity.generate()
_OWN = some_leaves(4)
_OTHERS = some_leaves(1500, start=100)


def _proofs(batch: list[bytes], asked: list[bytes]) -> list[InclusionProof]:
    tree, commitment = tree_over(batch), commitment_over(batch, _ANALYZER, _DIGEST)
    return [InclusionProof.of(tree, commitment, commitment.prefix_of(leaf)) for leaf in asked]


def _conclusion(proofs: list[InclusionProof]) -> InclusionState:
    first, identity = proofs[0].commitment, _ANALYZER.public_identity()
    return conclusion(
        [
            counted(leaf, proof, first, identity, _DIGEST)
            for leaf, proof in zip(_OWN, proofs, strict=True)
        ]
    )


def test_all_of_an_answer_or_it_is_missing() -> None:
    """Three of four reports are a tampered answer."""
    assert InclusionState.COUNTED is _conclusion(_proofs([*_OTHERS, *_OWN], _OWN))
    assert InclusionState.MISSING is _conclusion(_proofs([*_OTHERS, *_OWN[:3]], _OWN))
    assert InclusionState.MISSING is _conclusion(_proofs(_OTHERS, _OWN))


def test_two_batches_do_not_prove_one_answer() -> None:
    """Each holds half of it, and the analyzer signed both: one task has one batch."""
    first = _proofs([*_OTHERS, *_OWN[:2]], _OWN[:2])
    second = _proofs([*_OTHERS, *_OWN[2:]], _OWN[2:])

    with pytest.raises(ProofError, match="two commitments are shown for one task"):
        _conclusion([*first, *second])
