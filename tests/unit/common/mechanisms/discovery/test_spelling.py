import itertools

import numpy as np
import pytest
from numpy.typing import NDArray

from shuffledp.common.mechanisms.discovery.prefix_hashing import PrefixHashing, code_of, elements_of
from shuffledp.common.mechanisms.discovery.prefix_search import _best_texts, spell
from shuffledp.common.task.draft import OpenDraft
from shuffledp.lab.planning.predictions import planned_share


def _held(
    rows: list[NDArray[np.int64]], users: list[int], n_users: int, g: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Return the elements of texts' users; others send uniform ones, as devices do."""
    others = rng.integers(0, g, size=(n_users - sum(users), rows[0].shape[1]))
    return np.concatenate([np.repeat(np.concatenate(rows), users, axis=0), others])


def test_texts_of_known_hashes_are_spelled() -> None:
    """
    Two texts of 12 and 5 bytes, of 80,000 users; others send reports about no text.

    Seed 6. One hash is nobody's. An estimate errs by six standard errors with probability 1e-8.
    """
    texts = [b"https://a.b/", "café".encode()]
    codes = [code_of(text, 8).hex() for text in (*texts, b"nobody's")]
    mechanism = PrefixHashing.of(
        PrefixHashing.specify(OpenDraft(encoding="spell", most_bytes=16), 0, 7.0)
    )
    rows = [elements_of(text, 16, label) for label, text in enumerate(texts, start=1)]
    rng = np.random.default_rng(6)
    held = _held(rows, [2500, 5000], 80_000, mechanism.buckets, rng)
    reports = mechanism.randomize(held, rng)
    found = spell(mechanism, reports, codes)

    assert (texts[1], texts[0]) == found.values
    assert (np.abs(found.shares - [5000 / 80000, 2500 / 80000]) < 6 * found.standard_errors).all()
    assert (80_000, 16) == (found.reports.sum(), len(found.reports))
    assert 0 == found.least_share == found.expected_false


def test_shares_of_texts_with_common_bytes_are_unbiased() -> None:
    """
    Two short texts share their trailing zeros; 60 % hold the one.

    Seeds 0 to 5. The mean of six scores exceeds 5.5 / √6 by chance with probability 4e-8.
    """
    spec = PrefixHashing.specify(OpenDraft(encoding="spell", most_bytes=16), 0, 5.0)
    mechanism, texts, users = PrefixHashing.of(spec), [b"abc", b"xyz"], [60_000, 2_000]
    rows = [elements_of(text, 16, label) for label, text in enumerate(texts, start=1)]
    scores = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        reports = mechanism.randomize(_held(rows, users, 100_000, mechanism.buckets, rng), rng)
        found = spell(mechanism, reports, [code_of(text, 8).hex() for text in texts])
        assert tuple(texts) == found.values
        scores.append((found.shares - np.array(users) / 100_000) / found.standard_errors)

    assert (np.abs(np.mean(scores, axis=0)) < 5.5 / np.sqrt(6)).all()


def test_texts_of_the_sure_share_are_found() -> None:
    """
    Each of 20 texts of 6 to 12 bytes, held by the share that the plan states.

    Seed 9. If each were found with probability .95 only, fewer than 12 would be with 1e-7.
    """
    rng, n_users = np.random.default_rng(9), 100_000
    spec = PrefixHashing.specify(OpenDraft(encoding="spell", most_bytes=12), 0, 6.0)
    mechanism, share = PrefixHashing.of(spec), planned_share(spec, n_users)
    texts = [
        rng.integers(97, 123, size=6 + place % 7).astype("u1").tobytes() for place in range(20)
    ]
    rows = [elements_of(text, 12, label) for label, text in enumerate(texts, start=1)]
    held = _held(rows, [round(share * n_users)] * 20, n_users, mechanism.buckets, rng)
    reports = mechanism.randomize(held, rng)
    found = spell(mechanism, reports, [code_of(text, 8).hex() for text in texts])

    assert 12 <= len(found.values)
    assert share == pytest.approx(found.sure_share, rel=0.1)


def test_texts_are_tried_by_falling_support() -> None:
    """All strings of up to two of the best bytes come in order, each once, without inner zeros."""
    counts = np.random.default_rng(3).integers(0, 50, size=(2, 256))
    tried = list(itertools.islice(_best_texts(counts), 300))
    support = [int(counts[[0, 1], list(text.ljust(2, b"\0"))].sum()) for text in tried]

    assert 300 == len(set(tried))
    assert support == sorted(support, reverse=True)
    assert not any(b"\0" in text for text in tried)
    best = max(int(counts[0, 1:].max() + counts[1].max()), int(counts[:, 0].sum()))
    assert best == support[0]
