"""Settings of a party that answers tasks: its pins, and the limits of its answers."""

import math
from typing import Annotated, Final

from pydantic import Field
from pydantic.dataclasses import dataclass

from shuffledp.common.crypto.signing import PublicIdentity
from shuffledp.common.device_caps import DeviceCaps
from shuffledp.common.errors import SettingsError
from shuffledp.common.runtime.settings import ServiceSettings
from shuffledp.common.runtime.validation import STRICT
from shuffledp.common.transparency.checkpoint import NoteKey, log_key
from shuffledp.common.transparency.witness_policy import WitnessPolicy

_IDENTITIES: Final = ("analyzer_identity", "shuffler_identity", "relay_identity", "issuer_identity")


@dataclass(frozen=True, kw_only=True, config=STRICT)
class PinSettings(DeviceCaps, ServiceSettings):
    """Settings of a user agent, and of the publisher of a page that is one."""

    shuffler: str
    """Address of the shuffler."""
    issuer: str | None = None
    """Address of the issuer of one-time tokens, for tasks that require tokens."""
    analyzer_identity: str
    """The analyzer's signing identity that devices trust: 64 hexadecimal digits."""
    shuffler_identity: str
    """The shuffler's signing identity that devices trust: 64 hexadecimal digits."""
    relay_identity: str | None = None
    """The second shuffler's, likewise; tasks with two have no bound against both together."""
    shuffler_name: str | None = None
    """Name of the shuffler's operator, by which tasks with two shufflers must call it; if set."""
    relay_name: str | None = None
    """Name of the second shuffler's operator, likewise."""
    issuer_identity: str | None = None
    """The issuer's signing identity that devices trust: 64 hexadecimal digits."""
    witnesses: tuple[str, ...] = ()
    """Keys of the witnesses that devices trust to see one log of tasks, as in witness.pub."""
    witness_quorum: Annotated[int, Field(ge=0)] = 0
    """How many of them must have cosigned a task's checkpoint; 0 for all."""
    allow_tasks_without_tokens: bool = False
    """Answer tasks without tokens, to which anybody may submit any number of times: the analyzer
    alone can then leave a person alone in a batch, and learn as much as from that report by
    itself."""
    inclusion_check_seconds: Annotated[float, Field(gt=0, lt=math.inf)] = 3600.0
    """Average number of seconds between checks that an answer was counted."""

    def identities(self) -> dict[str, PublicIdentity]:
        """
        Return the pinned identities by their settings' names.

        Raises WireError for a malformed one, and SettingsError if two are equal, or the names.
        """
        texts = {name: getattr(self, name) for name in _IDENTITIES}
        found = {name: PublicIdentity.from_hex(text, name) for name, text in texts.items() if text}
        if len({each.raw for each in found.values()}) < len(found):
            raise SettingsError(f"{', '.join(found)} must be different keys")
        if self.shuffler_name and self.shuffler_name == self.relay_name:
            raise SettingsError("shuffler_name and relay_name must be different operators")
        return found

    def witness_policy(self) -> WitnessPolicy:
        """
        Return the pins of the log.

        Raises WireError for a malformed key, and SettingsError for another breach of a rule.
        """
        return WitnessPolicy(
            log=log_key(PublicIdentity.from_hex(self.analyzer_identity, "analyzer_identity")),
            witnesses=tuple(map(NoteKey.parse, self.witnesses)),
            quorum=self.witness_quorum or len(self.witnesses),
        )
