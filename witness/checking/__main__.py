"""Run as `python -m witness.checking --settings witness.toml`."""

import common.runtime.blas_threads  # noqa: F401  # before numpy
from common.runtime.service import main
from witness.checking.server import start
from witness.settings import CheckingWitnessSettings

if __name__ == "__main__":
    main("witness", CheckingWitnessSettings, start)
