"""What an operator is told of a published task, by `task create` and by `series publish`."""

import re
import time
from collections.abc import Mapping

import pytest

from shuffledp.common.task.shuffler_spec import GeometricNoise
from shuffledp.deploy.commands.publication import Publication
from tests.support.chains import FLANKS, chain
from tests.support.printing import printed
from tests.support.tasks import published
from tests.support.tokens import TOKENS, token_spec

_AWAY = {"witness/1": "", "witness/2": "the witness does not answer"}


@pytest.mark.parametrize(
    ("cosigned", "warning", "shown"),
    [
        ({}, "the log has no witness", "allow_unlogged_tasks"),
        (_AWAY, "witness/2: the witness does not answer", "1 of 2 witnesses have cosigned. The"),
        ({"witness/1": ""}, None, "Logged; 1 of 1 witnesses have cosigned.\n"),
        (None, None, "Claimed guarantees"),
    ],
)
def test_witnesses_that_have_not_cosigned_are_named(
    cosigned: Mapping[str, str] | None, warning: str | None, shown: str
) -> None:
    """In text and in JSON, where nothing is known of a task published earlier."""
    found = Publication(published(tokens=TOKENS).signed, cosigned)
    fields = found.as_json()

    assert (warning is None) == (not fields["warnings"])
    assert warning is None or fields["warnings"][0].startswith(warning)
    assert shown in printed(found.show, width=300)
    expected = None if cosigned is None else {name: not why for name, why in cosigned.items()}
    assert expected == fields["cosigned"]


def test_a_task_that_closes_within_minutes_is_published_with_a_warning() -> None:
    """A slip such as 12s for 12h leaves devices no time."""
    deadline = int(time.time()) + 12
    hasty = Publication(published(tokens=token_spec(end=deadline), deadline=deadline).signed, None)

    [warning] = hasty.warnings
    assert re.fullmatch(r"the deadline is in 1\d seconds; few devices answer before", warning)


def test_a_task_with_two_shufflers_names_the_pin_and_the_cap_that_apply() -> None:
    """Its local ε is infinite, and no matter."""
    noise = GeometricNoise(peak=4, left_weight=2**23, right_weight=2**23, most=8)
    found = Publication(published(**chain(FLANKS), tokens=TOKENS).signed, None)
    assert ["once relay_identity is set"] == [text[-26:] for text in found.warnings]
    weak = Publication(published(**chain(FLANKS, noise), tokens=TOKENS).signed, None)

    assert re.search(
        "coalition epsilon is .*; devices with default .* more than 4", weak.warnings[1]
    )


def test_a_task_without_tokens_is_named_whenever_it_was_published() -> None:
    """Devices refuse it by default."""
    found = Publication(published().signed, None)

    assert "the task has no tokens" in found.as_json()["warnings"][0]
    assert "the task has no tokens" in printed(found.show, width=300)
