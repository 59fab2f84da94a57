"""A connection that a client's calls come over, by its name alone."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """What a service needs of gRPC's context; see shuffler.servicer."""

    name: str
    """As gRPC names the other end."""

    def peer(self) -> str:
        """Give the name."""
        return self.name
