"""Settings of the user agent."""

import math
from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from common.accounting.composition import MIN_COMPOSED_DELTA
from common.crypto.signing import PublicIdentity
from common.errors import SettingsError
from common.runtime.access import is_local
from common.runtime.settings import FilePath, ServiceSettings
from common.runtime.validation import STRICT
from common.task.task import MAX_LOCAL_EPSILON
from common.transparency.checkpoint import NoteKey, log_key
from common.transparency.witness_policy import WitnessPolicy


@dataclass(frozen=True, kw_only=True, config=STRICT)
class UserAgentSettings(ServiceSettings):
    """Settings of one device."""

    shuffler: str
    """Address of the shuffler."""
    analyzer_identity: str
    """The analyzer's signing identity that this device trusts: 64 hexadecimal digits."""
    shuffler_identity: str
    """The shuffler's signing identity that this device trusts: 64 hexadecimal digits."""
    witnesses: tuple[str, ...] = ()
    """Keys of the witnesses that this device trusts to see one log of tasks, as in witness.pub."""
    witness_quorum: Annotated[int, Field(ge=0)] = 0
    """How many of them must have cosigned a task's checkpoint; 0 for all."""
    allow_unlogged_tasks: bool = False
    """Answer tasks without a proof that every device sees the same tasks."""
    inclusion_check_seconds: Annotated[float, Field(gt=0, lt=math.inf)] = 3600.0
    """Average number of seconds between checks that an answer was counted."""
    local_epsilon_cap: float = 4.0
    """Maximum local ε of one answer; infinite for no limit."""
    total_local_epsilon_cap: Annotated[float, Field(gt=0)] = 20.0
    """Maximum sum of the local ε of all answers of a person; infinite for no limit."""
    total_central_epsilon_cap: Annotated[float, Field(gt=0, lt=math.inf)] = 1.0
    """Maximum composed central ε of all answers of a person, at total_delta_cap."""
    total_delta_cap: Annotated[float, Field(ge=MIN_COMPOSED_DELTA, lt=1)] = 1e-4
    lasting_responses: bool = False
    """Answer questions that may be asked again with the same permanent noise. Their epsilon assumes
    that the person's answer stays the same; a change may become visible."""
    issuer: str | None = None
    """Address of the issuer of one-time tokens, for tasks that require tokens."""
    issuer_identity: str | None = None
    """The issuer's signing identity that this device trusts: 64 hexadecimal digits."""
    credential_file: FilePath | None = None
    """File of the credential that shows the issuer who asks: a secret of 64 hexadecimal digits or
    an ID token; for several persons, lines NAME CREDENTIAL."""
    allow_tasks_without_tokens: bool = False
    """Answer tasks without tokens, to which anybody may submit any number of times: the analyzer
    alone can then leave you alone in a batch, and learn as much as from your report by itself."""
    several_persons: bool = False
    """Answer for several people, identified by their names. For tests and shared devices."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not is_local(self.listen):
            raise SettingsError(
                "the user agent receives true values; it must listen on unix: or loopback"
            )
        given = [each is not None for each in (self.issuer, self.issuer_identity)]
        given.append(self.credential_file is not None)
        if any(given) != all(given):
            raise SettingsError("issuer, issuer_identity and credential_file belong together")
        if not (any(given) or self.allow_tasks_without_tokens):
            raise SettingsError(
                "set issuer, issuer_identity and credential_file, or allow_tasks_without_tokens"
            )
        cap = self.local_epsilon_cap
        if not (0 < cap <= MAX_LOCAL_EPSILON or cap == math.inf):
            raise SettingsError(
                f"local_epsilon_cap is {cap}; "
                f"it must be above 0 and at most {MAX_LOCAL_EPSILON}, or infinite"
            )
        if bool(self.witnesses) == self.allow_unlogged_tasks:
            raise SettingsError(
                "pin witnesses, so that nobody can show this device tasks of its own; or set "
                "allow_unlogged_tasks = true, without witnesses"
            )

    def log_policy(self) -> WitnessPolicy | None:
        """
        Return the pins of the log; None if tasks need not be logged.

        Raises WireError for a malformed key, and SettingsError for another breach of a rule.
        """
        if self.allow_unlogged_tasks:
            return None
        return WitnessPolicy(
            log=log_key(PublicIdentity.from_hex(self.analyzer_identity, "analyzer_identity")),
            witnesses=tuple(map(NoteKey.parse, self.witnesses)),
            quorum=self.witness_quorum or len(self.witnesses),
        )
