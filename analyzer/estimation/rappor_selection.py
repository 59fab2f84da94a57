"""
Which of very many candidates to fit: the non-negative LASSO [Tib96], as [EPK14] has it.

Run on one half of the cohorts, for a fit on the other half.
"""

import importlib
import math
import warnings
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from analyzer.estimation.rappor_evidence import Evidence
from common.errors import SettingsError

_MOST_SELECTED: Final = 500
_MOST_OF_CELLS: Final = 0.8
"""At most so many, and so many of the cells that they are fitted to [GRappor]."""
_LEAST_DEVIATIONS: Final = 2.0
"""Penalty at which a path ends: a candidate stays out whose bits stand out less than so far."""
_STEPS: Final = 20


def select(evidence: Evidence, fit_cells: int) -> NDArray[np.intp]:
    """
    Choose the candidates that explain the most.

    Args:
        evidence: Of the cohorts to choose by.
        fit_cells: Bits of the cohorts that the chosen ones will be fitted to.

    Returns:
        Candidates, in order; at most min(500, .8·fit_cells).

    Raises:
        SettingsError: scikit-learn is not installed.

    Cost: 20 fits by coordinate descent.
    """
    model = _lasso()
    most = min(_MOST_SELECTED, int(_MOST_OF_CELLS * fit_cells))
    # Equal variances: a row is divided by √N_j. Centring is the model's own intercept.
    roots = np.sqrt(np.repeat(evidence.sizes, len(evidence.baseline)))
    columns = evidence.incidence.multiply(roots[:, None]).tocsc()
    target = evidence.target.ravel() / roots
    typical = evidence.sizes[:, None] * evidence.baseline
    deviation = math.sqrt(float((evidence.variances(typical).ravel() / roots**2).mean()))
    norm = math.sqrt(float(columns.power(2).sum()) / evidence.n_candidates)
    least = _LEAST_DEVIATIONS * deviation * norm / len(target)
    centred = target - target.mean()
    largest = float((columns.T @ centred).max()) / len(target)
    chosen = np.zeros(0, dtype=np.intp)
    for alpha in np.geomspace(max(largest, least), least, _STEPS):
        model.set_params(alpha=alpha)
        with warnings.catch_warnings():
            # Whether the last digit has settled does not matter for which are above 0.
            warnings.simplefilter("ignore")
            model.fit(columns, target)
        found = np.nonzero(model.coef_ > 0)[0]
        if len(found) > most:
            break
        chosen = found
    return chosen


def _lasso() -> Any:  # noqa: ANN401  # scikit-learn has no types
    try:
        linear_model: Any = importlib.import_module("sklearn.linear_model")
    except ModuleNotFoundError as error:
        raise SettingsError(
            "choosing among so many candidates needs scikit-learn: install shuffledp with its "
            "extra research (pip install 'shuffledp[research]'), or scikit-learn beside it"
        ) from error
    return linear_model.Lasso(alpha=1.0, positive=True, warm_start=True, tol=1e-3, max_iter=2000)
