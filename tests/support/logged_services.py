"""The services with a log that the shuffler and two third parties witness; worlds can be copied."""

import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final, Self

import shuffledp.witness.server
from shuffledp.analyzer.settings import WitnessAddress
from shuffledp.common.runtime.key_store import load_identity
from shuffledp.common.runtime.service import Service
from shuffledp.common.runtime.state_directory import StateDirectory
from shuffledp.common.transparency.checkpoint import NoteKey
from shuffledp.common.transparency.log import LogEvidence
from shuffledp.user_agent.task_log import all_evidence
from shuffledp.witness.settings import WitnessSettings
from tests.support.services import Services

N_THIRD_PARTIES: Final = 2
N_WITNESSES: Final = 1 + N_THIRD_PARTIES


class LoggedServices(Services):
    """Analyzer, shuffler, witnesses and a user agent; all witnesses must cosign by default."""

    third_parties: list[Service]

    async def start(self, *, others: Self | None = None, n_honest: int = 0) -> None:
        """Start all; with `others`, use their last `n_honest` third-party witnesses."""
        self.directory.mkdir(exist_ok=True)
        state = StateDirectory.open(self.directory / "analyzer")
        self.identity = load_identity(state).public_identity().raw.hex()
        self.third_parties = []
        for number in range(N_THIRD_PARTIES - n_honest):
            self.third_parties.append(await self.start_witness(number))
        if others is not None:
            self.third_parties += others.third_parties[N_THIRD_PARTIES - n_honest :]
        self._n_own = N_THIRD_PARTIES - n_honest
        await self.start_analyzer()
        await self.start_shuffler()
        await self.analyzer.stop()
        await self.start_logged_analyzer()
        await self.start_device()

    async def start_witness(self, number: int, listen: str = "127.0.0.1:0") -> Service:
        """Start a third party's witness."""
        settings = self._settings(f"witness-{number}") | {"listen": listen}
        return await shuffledp.witness.server.start(
            WitnessSettings(**settings, analyzer_identity=self.identity)
        )

    def witness_keys(self) -> tuple[str, ...]:
        """Return the witnesses' keys, the shuffler's first."""
        folders = ("shuffler", *(f"witness-{number}" for number in range(N_THIRD_PARTIES)))
        files = (self.directory / folder / "witness.pub" for folder in folders)
        return tuple(file.read_text(encoding="ascii") for file in files)

    def note_keys(self) -> list[NoteKey]:
        """Return the witnesses' keys, parsed."""
        return list(map(NoteKey.parse, self.witness_keys()))

    async def start_logged_analyzer(self) -> None:
        """Start the analyzer again, with the witnesses in its settings."""
        addresses = (self.shuffler.address, *(one.address for one in self.third_parties))
        witnesses = tuple(
            WitnessAddress(address=address, key=key)
            for address, key in zip(addresses, self.witness_keys(), strict=True)
        )
        await self.start_analyzer(
            listen=self.analyzer.address,
            witnesses=witnesses,
            shuffler_identity=self.shuffler_identity,
        )

    async def start_device(self, **changes: Any) -> None:
        """Start the device, with all witnesses pinned."""
        await self.start_user_agent(
            **{"witnesses": self.witness_keys(), "listen": f"unix:{self.directory}/agent.sock"}
            | changes
        )

    async def stop(self) -> None:
        """Stop all, callers first; a witness of others is theirs."""
        await super().stop()
        for service in self.third_parties[: self._n_own]:
            await service.stop()

    def copied(self, folder: Path) -> Self:
        """Copy all keys and files of the stopped services, with which the log can be forked."""
        shutil.copytree(self.directory, folder)
        return type(self)(folder)

    async def evidence(self) -> Sequence[LogEvidence]:
        """Return what the device saw."""
        with closing(sqlite3.connect(self.directory / "user_agent" / "budget.sqlite")) as device:
            return all_evidence(device)
