"""Slow and plain versions of the mathematics, in high precision, to test against."""

from __future__ import annotations

import math

from mpmath import mp, mpf


def _root(constants, betas, sums):
    """The level l at which sum constants * e^{beta (l - R)} = 1, by Newton on its log."""
    live = [(mp.log(c), b, r) for c, b, r in zip(constants, betas, sums, strict=True) if r < mp.inf]
    level = min(r - c / b for c, b, r in live)
    for _ in range(200):
        terms = [(mp.exp(c + b * (level - r)), b) for c, b, r in live if c + b * (level - r) > -400]
        total = mp.fsum(t for t, _ in terms)
        step = mp.log(total) * total / mp.fsum(t * b for t, b in terms)
        level -= step
        if abs(step) < mpf(10) ** (-mp.dps + 12) * (1 + abs(level)):
            return level
    raise AssertionError("the oracle did not converge")


def epsilon(orders, weights, delta, sums):
    """sup of l + log(1 - T(l)), clamped at 0; infinity if every order is dropped."""
    if all(math.isinf(r) for r in sums):
        return mp.inf
    orders = [mpf(a) for a in orders]
    betas = [a - 1 for a in orders]
    tail = [mpf(delta) * mpf(w) for w in weights]
    sums = [mpf(r) for r in sums]
    level = _root([t * a for t, a in zip(tail, orders, strict=True)], betas, sums)
    mass = mp.fsum(
        t * mp.exp(b * (level - r))
        for t, b, r in zip(tail, betas, sums, strict=True)
        if r < mp.inf and b * (level - r) > -400
    )
    return max(mpf(0), level + mp.log(1 - mass))


def loss_bound(orders, weights, delta, sums):
    """The level at which T(l) = 1."""
    if all(math.isinf(r) for r in sums):
        return mp.inf
    betas = [mpf(a) - 1 for a in orders]
    return _root([mpf(delta) * mpf(w) for w in weights], betas, [mpf(r) for r in sums])


def divergence(pairs, order):
    """D_order(P||Q) of a finite pair of distributions."""
    a = mpf(order)
    return mp.log(mp.fsum(p**a * q ** (1 - a) for p, q in pairs)) / (a - 1)


def gaussian_rdp(noise, order):
    return mpf(order) / (2 * mpf(noise) ** 2)


def laplace_rdp(scale, order):
    """By quadrature over the density, not by the closed form under test."""
    a, s = mpf(order), mpf(scale)

    def integrand(x):
        p, q = mp.exp(-abs(x) / s), mp.exp(-abs(x - 1) / s)
        return p**a * q ** (1 - a) / (2 * s)

    far = 40 * s * (1 + a) + 2
    return mp.log(mp.quad(integrand, [-far, -10 * s, 0, mpf(1) / 2, 1, 1 + 10 * s, far])) / (a - 1)


def randomised_response_rdp(epsilon, order):
    p = 1 / (1 + mp.exp(-mpf(epsilon)))
    return divergence([(p, 1 - p), (1 - p, p)], order)


def sampled_gaussian_rdp(rate, noise, order):
    """Sum at whole orders, quadrature at others; the direction that costs more."""
    q, s = mpf(rate), mpf(noise)
    if order == int(order):
        n = int(order)
        moment = mp.fsum(
            mp.binomial(n, k) * (1 - q) ** (n - k) * q**k * mp.exp(mpf(k * (k - 1)) / (2 * s * s))
            for k in range(n + 1)
        )
        return mp.log(moment) / (n - 1)
    return mp.log(sampled_gaussian_moment(rate, noise, order)) / (mpf(order) - 1)


def sampled_gaussian_moment(rate, noise, order, *, swapped=False):
    """E_Q (P/Q)^a by quadrature; swapped: E_P (Q/P)^a, with P the mixture."""
    q, s, a = mpf(rate), mpf(noise), mpf(order)

    def ratio(t):
        return 1 - q + q * mp.exp(t / s - 1 / (2 * s * s))

    def integrand(t):
        return ratio(t) ** (1 - a if swapped else a) * mp.npdf(t)

    top = int(a / s) + 16
    return mp.quad(integrand, [mpf(x) for x in range(-16, top + 2, 2)])


def some_output_above(rate, noise, runs, epsilon):
    """The largest P - e^epsilon Q of "some of the outputs is above t", over many t.

    Outputs are those of sampled Gaussians run independently, in 40 digits: a lower bound on the
    hockey-stick divergence that needs no theory.
    """
    with mp.workdps(40):
        rate, noise = mpf(rate), mpf(noise)

        def excess(t):
            low = mp.ncdf(-t / noise)
            high = (1 - rate) * low + rate * mp.ncdf((1 - t) / noise)
            p = -mp.expm1(runs * mp.log1p(-high))
            q = -mp.expm1(runs * mp.log1p(-low))
            return p - mp.exp(mpf(epsilon)) * q

        return max(excess(noise * mpf(k) / 50) for k in range(25, 600))
