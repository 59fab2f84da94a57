"""What the shufflers of several views add, in words."""

from shuffledp.common.task.shuffler_spec import BinomialNoise, ItemNoise
from shuffledp.common.task.shuffling import noises_in_words


def test_noises_that_repeat_are_stated_once() -> None:
    """By view if they differ; by turns if the first views' repeat to the end."""
    one, two = BinomialNoise(trials=3), BinomialNoise(trials=4)
    cases: dict[tuple[ItemNoise, ...], str] = {
        (one,): one.words,
        (one,) * 900: one.words,
        (one, two, two): f"of view 1 {one.words}; of views 2, 3 {two.words}",
        (one, two) * 450: f"of view 1 {one.words}; of view 2 {two.words}; and so on by turns",
    }

    for noises, words in cases.items():
        assert words == noises_in_words(noises)
