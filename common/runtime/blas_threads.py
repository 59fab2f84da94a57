"""
Limit BLAS to one thread. Entry points import this module before numpy is loaded.

BLAS's other threads spin while they wait, which burns several times the CPU time that they save.
Libraries read these variables when they are loaded; worker processes inherit them.
"""

import os

for _variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")
