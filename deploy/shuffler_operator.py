"""An operator's calls to the shuffler: close a batch early."""

from pathlib import Path

from common.errors import PeerError, SettingsError
from common.runtime.rpc import SHORT_DEADLINE, open_channel, reply
from common.task_digest import TaskDigest
from deploy.operator_client import read_token
from protos.shuffledp.v1 import shuffler_pb2, shuffler_pb2_grpc


async def close_batch(
    shuffler: str, authority: Path | None, token_file: Path, digest: TaskDigest
) -> None:
    """
    Close a task's batch before its deadline. Doing it again changes nothing.

    Args:
        shuffler: The shuffler's host:port.
        authority: PEM file of the authority to trust; None for plaintext on loopback.
        token_file: Where the token of the shuffler's operator is kept.
        digest: The task.

    Raises:
        SettingsError: A file cannot be read.
        PeerError: No shuffler answers.
        PeerRefusalError: It has fewer users than n_min, or expired, or the task is unknown.
    """
    trusted = None if authority is None else read_authority(authority)
    metadata = (("authorization", f"Bearer {read_token(token_file)}"),)
    async with open_channel(shuffler, "shuffler", trusted) as channel:
        stub = shuffler_pb2_grpc.ShufflerStub(channel)
        request = shuffler_pb2.CloseBatchRequest(task_digest=digest)
        try:
            closing = stub.CloseBatch(request, metadata=metadata, timeout=SHORT_DEADLINE)
            await reply(closing, f"the shuffler at {shuffler}")
        except PeerError as error:
            raise PeerError(
                f"{error}. Check that it runs, the address, host:port, and the authority"
            ) from error


def read_authority(authority: Path) -> bytes:
    """
    Read whom to trust. gRPC parses it, and trusts nobody if it is none.

    Raises:
        SettingsError: The file cannot be read.
    """
    try:
        return authority.read_bytes()
    except OSError as error:
        raise SettingsError(f"{authority} cannot be read: {error.strerror}") from error
