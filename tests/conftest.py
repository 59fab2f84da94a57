"""Settings of all tests."""

from hypothesis import settings

import common.runtime.blas_threads  # noqa: F401  # before numpy

settings.register_profile("untimed", deadline=None)  # a busy machine must not fail a test
settings.load_profile("untimed")
