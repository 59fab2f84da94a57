"""Among whom a victim hides: honest users and dummies, less what the adversary knows."""

from dataclasses import dataclass

from common.accounting.counts import MAX_COUNT, CountLaw
from common.errors import AccountingError


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """
    The users and dummies of one batch. The victim is one of `users`.

    Dummies may be the users' own or the shuffler's: the analyzer cannot tell. Those of colluding
    users, and of users who skip theirs, are not among them.
    """

    users: int
    dummies: int = 0
    """Honest dummies that are there for certain, the victim's own included."""
    random_dummies: CountLaw | None = None
    """Law of the number of further honest dummies, independent of every value."""
    known_dummies: int = 0
    """Dummies, of all these, that the adversary can tell apart and drop."""
    colluders: int = 0
    """Users among `users` whose reports the adversary knows."""

    def __post_init__(self) -> None:
        for name, value, least in (
            ("users", self.users, 1),
            ("dummies", self.dummies, 0),
            ("known_dummies", self.known_dummies, 0),
            ("colluders", self.colluders, 0),
        ):
            if not least <= value <= MAX_COUNT:
                raise AccountingError(f"{name} is {value}; it must be {least} .. {MAX_COUNT}")
        if self.colluders >= self.users:
            raise AccountingError(
                f"{self.colluders} colluders among {self.users} users leave nobody to protect"
            )
        if self.random_dummies is None and self.known_dummies > self.dummies:
            raise AccountingError(
                f"known_dummies is {self.known_dummies}; there are {self.dummies} dummies"
            )

    @property
    def others(self) -> int:
        """Honest users besides the victim."""
        return self.users - 1 - self.colluders
