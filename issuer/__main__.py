"""Run as `python -m issuer --settings issuer.toml`."""

import common.runtime.blas_threads  # noqa: F401  # before numpy
from common.runtime.service import main
from issuer.server import start
from issuer.settings import IssuerSettings

if __name__ == "__main__":
    main("issuer", IssuerSettings, start)
