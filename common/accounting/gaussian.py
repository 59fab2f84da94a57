"""
Gaussian differential privacy, the limit of counting mechanisms in large crowds [DRS22].

An approximation for searches and the benchmark of the central model; no guarantee rests on it.
"""

import math

import scipy

_LEAST: float = 1e-12
_MOST: float = 1e6
"""Range of a search for μ."""


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Return δ(ε) = Φ(-ε/μ + μ/2) - e^ε·Φ(-ε/μ - μ/2) of μ-Gaussian privacy [DRS22]."""
    first = float(scipy.special.log_ndtr(-epsilon / mu + mu / 2))
    second = epsilon + float(scipy.special.log_ndtr(-epsilon / mu - mu / 2))
    return math.exp(first) * -math.expm1(min(second - first, 0.0))


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Return the μ of Gaussian privacy through (ε, δ), 1e-12 .. 1e6; 0 if δ is 0, infinite if 1."""
    if delta <= 0:
        return 0.0
    if delta >= 1:
        return math.inf
    wanted = math.log(delta)

    def excess(log_mu: float) -> float:
        return math.log(max(gaussian_delta(math.exp(log_mu), epsilon), 1e-300)) - wanted

    low, high = math.log(_LEAST), math.log(_MOST)
    if excess(low) >= 0:
        return _LEAST
    if excess(high) <= 0:
        return _MOST
    return math.exp(float(scipy.optimize.brentq(excess, low, high, xtol=1e-9)))
