import random
import shutil
from collections.abc import Callable
from typing import Final

import pytest

from shuffledp.common.dates import utc
from shuffledp.common.errors import SettingsError, StorageError
from shuffledp.common.runtime.confirmed_clock import (
    LONGEST_STOP,
    TOLERANCE,
    ConfirmedClock,
    confirm,
    stored_reading,
)
from shuffledp.common.runtime.state_directory import StateDirectory
from tests.support.machines import Machine

_DAY: Final = 86_400.0
_JUMPS: Final = [
    sign * size for sign in (-1, 1) for size in (TOLERANCE + 1, 3600, _DAY, 365 * _DAY)
]


@pytest.fixture
def machine() -> Machine:
    """The service's machine."""
    return Machine()


@pytest.fixture(autouse=True)
def _log_everything(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "shuffledp")


def _levels(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.levelname for record in caplog.records if record.name == "shuffledp"]


@pytest.mark.parametrize("jump", [-TOLERANCE, -1.5, 0.0, 1.5, TOLERANCE])
def test_a_running_service_follows_small_steps_of_the_clock(
    state: StateDirectory, machine: Machine, jump: float
) -> None:
    """Time servers and leap seconds correct a clock so, forwards and back."""
    clock = ConfirmedClock(state, machine)
    machine.wall += jump

    assert machine.wall == clock.now()


@pytest.mark.parametrize("jump", _JUMPS)
def test_the_clock_stands_still_after_a_jump_until_the_wall_clock_returns(
    state: StateDirectory, machine: Machine, caplog: pytest.LogCaptureFixture, jump: float
) -> None:
    """
    One wrong reading makes nothing due, and is reported once.

    Nor does a time that was confirmed and wrong: it stands still at the earlier of both times.
    """
    clock = ConfirmedClock(state, machine)
    before = machine.wall
    machine.wall += jump
    earliest = before + min(0, jump + 5)
    seen = []
    for _ in range(3):
        machine.run(5)
        clock.check()
        seen.append(clock.now())
    machine.wall -= jump

    assert [earliest] * 3 == seen
    assert before + 15 == clock.now()
    assert ["ERROR", "INFO"] == _levels(caplog)


@pytest.mark.parametrize("jump", _JUMPS)
@pytest.mark.parametrize(
    "restart",
    [lambda _: None, lambda machine: machine.run(40 * _DAY), lambda machine: machine.reboot(60)],
    ids=["at once", "after 40 days on a running machine", "after a boot"],
)
def test_a_jump_between_two_starts_is_noticed(
    state: StateDirectory, machine: Machine, jump: float, restart: Callable[[Machine], None]
) -> None:
    """The stored reading has both clocks, so a boot alone leaves room, less than an hour."""
    ConfirmedClock(state, machine).close()
    stored = machine.wall
    restart(machine)
    machine.wall += jump
    rebooted = machine.boots > 0
    plausible = rebooted and -TOLERANCE <= jump + 60 <= LONGEST_STOP
    expected = machine.wall if plausible else min(stored, machine.wall)

    clock = ConfirmedClock(state, machine)

    assert expected == clock.now()
    assert plausible == (clock.confirmed_now() is not None)


def test_a_hidden_boot_is_taken_for_another_one(state: StateDirectory, machine: Machine) -> None:
    """A sandbox that restarts after minutes goes on; a running one notices steps as others do."""
    machine.hides_boot = True
    ConfirmedClock(state, machine).close()
    machine.reboot(off=360)
    machine.run(91)
    clock = ConfirmedClock(state, machine)
    started = clock.now()
    machine.wall += 2 * TOLERANCE

    assert machine.wall - 2 * TOLERANCE == started == clock.now()


def test_a_confirmation_during_a_write_is_kept(
    state: StateDirectory, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread takes it while the disk is slow."""
    clock = ConfirmedClock(state, machine)
    machine.run(700)

    def slow(file: str, content: str) -> None:
        publish(file, content)
        monkeypatch.undo()
        machine.wall += _DAY
        confirm(state, machine.reading())
        clock.check()

    publish = state.publish
    monkeypatch.setattr(StateDirectory, "publish", lambda _, *given: slow(*given))
    clock.check()

    assert machine.wall == clock.now()


def test_suspended_time_counts(state: StateDirectory, machine: Machine) -> None:
    """A machine that slept for a year goes on without a confirmation."""
    clock = ConfirmedClock(state, machine)
    machine.run(365 * _DAY)

    assert machine.wall == clock.now()


def test_a_machine_that_was_off_for_a_year_waits_for_its_operator(
    state: StateDirectory, machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    """The stored time holds, also over further starts; after the confirmation the wall clock."""
    ConfirmedClock(state, machine).close()
    stored = machine.wall
    machine.reboot(off=365 * _DAY)
    for _ in range(2):
        clock = ConfirmedClock(state, machine)
        machine.run(60)
        clock.check()
        clock.close()

    assert stored == clock.now()
    assert ["ERROR"] * 2 == _levels(caplog)
    confirm(state, machine.reading())
    machine.run(1)
    clock.check()
    assert machine.wall == clock.now()


def test_a_removed_time_confirms_the_next_start_alone(
    state: StateDirectory, machine: Machine
) -> None:
    """A running service does not write it again, and goes on waiting."""
    clock = ConfirmedClock(state, machine)
    stored = machine.wall
    machine.wall += _DAY
    clock.check()
    (state.path / "clock.json").unlink()
    clock.check()
    waiting = clock.now()
    clock.close()

    assert stored == waiting
    assert machine.wall == ConfirmedClock(state, machine).now()


def test_a_time_that_was_stored_far_ahead_makes_nothing_due(
    state: StateDirectory, machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    """A wrong clock was once taken as right; neither time counts until one is confirmed."""
    right = machine.wall
    machine.wall += 3650 * _DAY
    ConfirmedClock(state, machine).close()
    machine.run(60)
    machine.wall -= 3650 * _DAY
    clock = ConfirmedClock(state, machine)
    waiting = clock.now()
    machine.wall += 400 * _DAY
    jumped = clock.now()
    machine.wall -= 400 * _DAY
    confirm(state, machine.reading())
    clock.check()
    machine.run(60)

    assert right + 60 == waiting == jumped
    assert machine.wall == clock.now() == clock.confirmed_now()
    assert ["ERROR", "INFO"] == _levels(caplog)


def test_a_jump_during_a_confirmation_is_told_at_once(
    state: StateDirectory, machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    """The operator, who has just confirmed another time, need not wait ten minutes for it."""
    clock = ConfirmedClock(state, machine)
    machine.wall += _DAY
    clock.check()
    confirm(state, machine.reading())
    machine.wall -= 2 * _DAY
    clock.check()

    assert clock.confirmed_now() is None
    assert ["ERROR"] * 2 == _levels(caplog)


def test_the_report_of_a_jump_names_both_times(
    state: StateDirectory, machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    """It is repeated every ten minutes."""
    clock = ConfirmedClock(state, machine)
    right = machine.wall
    machine.wall += _DAY
    for _ in range(21):
        clock.check()
        machine.run(60)

    fields = [record.__dict__["fields"] for record in caplog.records]
    assert {"clock": utc(right + _DAY), "expected": utc(right)} == fields[0]
    assert ["ERROR"] * 2 == _levels(caplog)


def test_a_confirmed_clock_is_compared_again(state: StateDirectory, machine: Machine) -> None:
    """A confirmation is of one reading, not of later jumps."""
    clock = ConfirmedClock(state, machine)
    machine.wall += _DAY
    clock.check()
    confirm(state, machine.reading())
    clock.check()
    confirmed = clock.now()
    machine.wall += _DAY

    assert machine.wall - _DAY == confirmed
    assert confirmed == clock.now()


def test_many_small_steps_add_up_to_a_jump(state: StateDirectory, machine: Machine) -> None:
    """Readings are compared with a stored one, not with the one before."""
    clock = ConfirmedClock(state, machine)
    for _ in range(4):
        machine.wall += 20
        machine.run(1)
        seen = clock.now()

    assert machine.wall - 21 == seen


def test_a_service_stores_the_time_seldom_and_never_an_earlier_one(
    state: StateDirectory, machine: Machine
) -> None:
    """A crash loses at most ten minutes, and a step back is not stored."""
    clock, stored = ConfirmedClock(state, machine), []
    for _ in range(3600):
        machine.run(1)
        clock.check()
        stored.append(getattr(stored_reading(state), "wall", 0.0))
    clock.close()
    stored.append(machine.wall)
    machine.wall -= 30
    clock.close()

    assert sorted(stored) == stored
    assert len(set(stored)) <= 7
    assert stored[-1] == getattr(stored_reading(state), "wall", None)


def test_a_full_disk_is_reported_every_ten_minutes(state: StateDirectory, machine: Machine) -> None:
    """The clock goes on meanwhile."""
    clock, failed = ConfirmedClock(state, machine), 0
    shutil.rmtree(state.path)
    for _ in range(1300):
        machine.run(1)
        try:
            clock.check()
        except StorageError:
            failed += 1

    assert 2 == failed
    assert machine.wall == clock.now()


def test_jumps_at_random_never_make_a_time_due(state: StateDirectory, machine: Machine) -> None:
    """Over jumps and starts the time is never ahead of the right one by more than a small step."""
    moments = random.Random(1)  # noqa: S311  # moments of jumps are no secret
    clock, error = ConfirmedClock(state, machine), 0.0
    for _ in range(2000):
        machine.run(moments.uniform(0, 900))
        machine.wall -= error
        error = moments.choice((0.0, *_JUMPS, 7.0, -7.0))
        machine.wall += error
        if moments.random() < 0.2:
            clock.close()
        if moments.random() < 0.2:
            clock = ConfirmedClock(state, machine)
        clock.check()
        assert clock.now() <= machine.wall - error + TOLERANCE + 7


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"\xff",
        b"[1]",
        bytes(8192),
        b'{"version": 2, "wall": 1, "since_boot": 1, "boot": ""}',
        b'{"wall": NaN, "since_boot": 1, "boot": ""}',
        b'{"wall": %d, "since_boot": 1, "boot": ""}' % 10**400,
        None,
    ],
)
def test_a_damaged_time_is_refused_until_the_clock_is_confirmed(
    state: StateDirectory, machine: Machine, content: bytes | None
) -> None:
    """Or a link whose disk is missing: no first start, at which any time would be right."""
    if content is None:
        (state.path / "clock.json").symlink_to("missing")
    else:
        (state.path / "clock.json").write_bytes(content)
    with pytest.raises(SettingsError, match="keys confirm-clock"):
        ConfirmedClock(state, machine)

    confirm(state, machine.reading())

    assert machine.wall == ConfirmedClock(state, machine).now()


def test_a_folder_in_place_of_the_time_is_refused(state: StateDirectory, machine: Machine) -> None:
    """Nothing else is left behind, and the sentence says to remove it."""
    (state.path / "clock.json").mkdir()
    with pytest.raises(SettingsError, match="remove it"):
        ConfirmedClock(state, machine)
    with pytest.raises(StorageError, match="cannot be opened"):
        confirm(state, machine.reading())

    assert ["clock.json"] == [path.name for path in state.path.iterdir()]


def test_only_a_services_directory_has_a_clock(state: StateDirectory, machine: Machine) -> None:
    """A mistyped folder is refused."""
    with pytest.raises(SettingsError, match="not a service's state directory"):
        confirm(state, machine.reading())
