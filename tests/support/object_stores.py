"""An S3-compatible object store on loopback, in this process."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest
from pyarrow.fs import S3FileSystem

_CREDENTIALS: Final = {"access_key": "test", "secret_key": "test", "region": "us-east-1"}


@contextmanager
def object_store() -> Iterator[str]:
    """Yield the address of a prefix in an empty bucket."""
    from moto.server import ThreadedMotoServer  # noqa: PLC0415  # not in every process that collects

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", 0)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"{host}:{port}"
    S3FileSystem(
        endpoint_override=endpoint, scheme="http", allow_bucket_creation=True, **_CREDENTIALS
    ).create_dir("bucket")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("AWS_ACCESS_KEY_ID", _CREDENTIALS["access_key"])
        environment.setenv("AWS_SECRET_ACCESS_KEY", _CREDENTIALS["secret_key"])
        options = f"region={_CREDENTIALS['region']}&endpoint_override={endpoint}&scheme=http"
        try:
            yield f"s3://bucket/prefix?{options}"
        finally:
            server.stop()
