"""Run as `python -m shuffledp.witness.checking --settings witness.toml`."""

import shuffledp.common.runtime.blas_threads  # noqa: F401  # before numpy
from shuffledp.common.runtime.service import main
from shuffledp.witness.checking.server import start
from shuffledp.witness.settings import CheckingWitnessSettings

if __name__ == "__main__":
    main("witness", CheckingWitnessSettings, start)
