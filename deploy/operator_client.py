"""An operator's calls to the analyzer: publish tasks, read results and the ledger."""

import asyncio
from collections.abc import Awaitable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import grpc

from common.draft import TaskDraft
from common.draft_wire import draft_to_wire
from common.errors import NotReleasedError, PeerError, PeerRefusalError, SettingsError
from common.evidence_wire import sentinel_parts, sentinels_to_wire
from common.ledger_entry import ChainHead, LedgerEntry, verify
from common.ledger_wire import ledger_from_wire
from common.result import Result
from common.runtime.clock import SystemClock
from common.runtime.rpc import LONG_DEADLINE, SHORT_DEADLINE, open_channel, reply
from common.runtime.tls import client_identity
from common.signing import SignedTask
from common.task_digest import TaskDigest
from common.wire import MAX_RESULT_BYTES, result_from_wire, signed_task_from_wire
from protos.shuffledp.v1 import analyzer_pb2, analyzer_pb2_grpc

T = TypeVar("T")


def read_token(file: Path) -> str:
    """
    Read an operator's token.

    Raises:
        SettingsError: The file cannot be read, or holds what no call can carry.
    """
    try:
        token = file.read_text(encoding="ascii").strip()
    except OSError as error:
        raise SettingsError(f"{file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"{file} does not hold an operator's token") from error
    if not (token and token.isprintable()):
        raise SettingsError(f"{file} does not hold an operator's token")
    return token


class OperatorClient:
    """An analyzer at the other end of a channel, for whoever holds its operator's token."""

    def __init__(self, channel: grpc.aio.Channel, address: str, token: str) -> None:
        self._channel = channel
        self._address = address
        self._stub = analyzer_pb2_grpc.AnalyzerStub(channel)
        self._metadata = (("authorization", f"Bearer {token}"),)

    @classmethod
    def connect(
        cls,
        address: str,
        authority: Path | None,
        token_file: Path,
        certificate: Path | None = None,
        key: Path | None = None,
    ) -> Self:
        """
        Open a channel.

        Args:
            address: The analyzer's host:port.
            authority: PEM file of the authority to trust; None for plaintext on loopback.
            token_file: Where the operator's token is kept.
            certificate: The operator's certificate; None for operator.pem beside the authority.
            key: Its key; None for operator.key beside the authority.

        Raises:
            SettingsError: A file cannot be read.
        """
        own = (
            client_identity(authority, certificate, key, SystemClock().now()) if authority else None
        )
        channel = open_channel(
            address,
            "analyzer",
            own.authority if own else None,
            own=own,
            receive_limit=MAX_RESULT_BYTES,
        )
        return cls(channel, address, read_token(token_file))

    async def create_task(self, draft: TaskDraft) -> SignedTask:
        """Publish a task."""
        call = self._stub.CreateTask(
            draft_to_wire(draft), metadata=self._metadata, timeout=SHORT_DEADLINE
        )
        return signed_task_from_wire((await self._reply(call)).task)

    async def register_sentinels(
        self, digest: TaskDigest, sentinels: Sequence[bytes], *, acknowledged: bool
    ) -> None:
        """
        Register test submissions, by their leaves; again with the same ones changes nothing.

        Many take several calls. If one fails, those of the earlier ones are registered.
        """
        for part in sentinel_parts(sentinels):
            request = sentinels_to_wire(digest, part, acknowledged=acknowledged)
            call = self._stub.RegisterSentinels(
                request, metadata=self._metadata, timeout=SHORT_DEADLINE
            )
            await self._reply(call)

    async def result(self, digest: TaskDigest) -> Result:
        """
        Read a released result.

        Raises:
            NotReleasedError: It is not there yet.
        """
        request = analyzer_pb2.GetResultRequest(task_digest=digest)
        call = self._stub.GetResult(request, metadata=self._metadata, timeout=LONG_DEADLINE)
        try:
            return result_from_wire(await self._reply(call))
        except PeerRefusalError as error:
            if error.status == NotReleasedError.status:
                raise NotReleasedError(str(error)) from error
            raise

    async def ledger(self) -> tuple[list[LedgerEntry], ChainHead]:
        """
        Read the whole ledger, and verify its chain.

        Raises:
            LedgerError: It is broken; names the first entry that breaks it.
        """
        entries: list[LedgerEntry] = []
        head = ChainHead()
        while True:
            request = analyzer_pb2.GetLedgerRequest(after=head.entry)
            call = self._stub.GetLedger(request, metadata=self._metadata, timeout=LONG_DEADLINE)
            page = ledger_from_wire(await self._reply(call))
            if not page:
                return entries, head
            head = verify(page, head)
            entries += page

    async def _reply(self, call: Awaitable[T]) -> T:
        try:
            return await reply(call, f"the analyzer at {self._address}")
        except PeerError as error:
            raise PeerError(
                f"{error}. Check that it runs, the address, host:port, the authority, and that "
                "operator.pem and operator.key lie beside it"
            ) from error

    async def wait_for_result(self, digest: TaskDigest, *, pause: float = 0.2) -> Result:
        """Read a result as soon as it is released. Bound it with asyncio.timeout."""
        while True:
            try:
                return await self.result(digest)
            except NotReleasedError:
                await asyncio.sleep(pause)

    async def close(self) -> None:
        """Close the channel."""
        await self._channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
