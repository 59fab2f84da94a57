"""Run as `python -m shuffledp.issuer --settings issuer.toml`."""

import shuffledp.common.runtime.blas_threads  # noqa: F401  # before numpy
from shuffledp.common.runtime.service import main
from shuffledp.issuer.server import start
from shuffledp.issuer.settings import IssuerSettings

if __name__ == "__main__":
    main("issuer", IssuerSettings, start)
