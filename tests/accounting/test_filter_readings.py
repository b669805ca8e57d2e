"""A filter's readings hold for whoever stops at the worst moment, like an odometer's (T5)."""

import math

import pytest

import dosimeter as dm
from adversaries import player
from dosimeter.accounting.priced.menu import make_menu
from dosimeter.compare.adversaries import FiniteMechanism

ROUNDING = 1 + 1e-6
STEP = dm.SampledGaussian(0.01, 1.0)


class TestGuarantee:
    def test_a_stopped_filter_states_its_reading_as_an_odometer_does(self):
        budget = dm.Filter(3.0, 1e-6)
        budget.spend(STEP, 98)
        stopped = budget.guarantee(stopped=True)
        assert (stopped.kind, stopped.epsilon) == ("odometer", budget.epsilon)
        assert (stopped.delta, stopped.neighbours) == (budget.total_delta, budget.neighbours)
        assert str(stopped).startswith(f"ex-post ({budget.epsilon!r}, 1e-06)-DP at the moment of")
        assert budget.guarantee().kind == "filter"

    def test_an_odometer_says_the_same_either_way(self):
        odometer = dm.Odometer(1e-6)
        odometer.spend(STEP, 98)
        assert odometer.guarantee(stopped=True) == odometer.guarantee()

    def test_the_conditions_of_a_menu_stay(self):
        budget = dm.Filter(3.0, 1e-6, menu=[dm.Gaussian(30.0)])
        budget.spend(dm.Gaussian(30.0), 5)
        stopped = budget.guarantee(stopped=True)
        assert stopped.conditions == budget.guarantee().conditions != ()


def readings_of(budget, cost, parts):
    """The readings after equal parts of all that a filter affords, and the size of a part."""
    size = budget.affordable(cost) // parts
    assert size > 0
    readings = []
    for _ in range(parts):
        budget.spend(cost, size)
        readings.append(budget.epsilon)
    return size, readings


@pytest.mark.parametrize(
    ("epsilon", "delta", "cost", "parts"),
    [
        (0.05, 1e-6, dm.Gaussian(1000.0), 40),
        (1.0, 1e-9, dm.SampledGaussian(1e-3, 1.0), 40),
        (3.0, 1e-6, STEP, 8),
        (3.0, 1e-6, STEP, 40),
        (3.0, 1e-2, dm.Gaussian(20.0), 40),
        (8.0, 1e-5, dm.Laplace(20.0), 8),
        (20.0, 1e-6, dm.Gaussian(2.0), 8),
    ],
)
def test_who_stops_at_the_worst_reading_reaches_no_more_than_delta(epsilon, delta, cost, parts):
    size, readings = readings_of(dm.Filter(epsilon, delta), cost, parts)
    assert readings == sorted(readings)
    assert player.stopped(cost, [size], readings, delta) <= delta * ROUNDING


@pytest.mark.parametrize("ended", [False, True])
def test_so_it_is_with_a_menu_open_or_ended(ended):
    """The mixture reads on a tenth of delta while the menu is open, and alone once it ended."""
    delta = 1e-6
    budget = dm.Filter(3.0, delta, menu=[STEP, dm.SampledGaussian(0.01, 2.0)])
    if ended:
        budget.spend(dm.Zcdp(1e-5))  # it has no price
    assert budget.standing.menu is not ended
    size, readings = readings_of(budget, STEP, 20)
    assert player.stopped(STEP, [size], readings, delta) <= delta * ROUNDING


class Game:
    """The best adversary against a filter who also chooses the moment at which she stops.

    She tries every mechanism that the filter admits after every view; stopping pays what her view
    has beyond e^reading. Probabilities of two-point mechanisms are multiplied out.
    """

    def __init__(self, mechanisms, read):
        self._mechanisms, self._read = mechanisms, read
        self._after = {}

    def value(self, account, depth, spent=(), p=1.0, q=1.0):
        best = max(0.0, p - math.exp(self._read(account)) * q)
        for number, mechanism in enumerate(self._mechanisms if depth else ()):
            path = (*spent, number)
            if path not in self._after:
                fits = account.admits(mechanism)
                self._after[path] = account.after(mechanism) if fits else None
            after = self._after[path]
            if after is not None:
                best = max(
                    best,
                    sum(
                        self.value(after, depth - 1, path, p * float(a), q * float(b))
                        for a, b in mechanism.worlds()
                    ),
                )
        return best


RARE, OFTEN, OTHER = (
    FiniteMechanism((1.1,), (0.007,)),
    FiniteMechanism((0.4,), (0.08,)),
    FiniteMechanism((0.7,), (0.03,)),
)


def reading(account):
    return account.epsilon


class TestAgainstEveryStrategy:
    """Few orders and a large delta, so that a tree of small depth reaches a good part of it."""

    EPSILON, DELTA, DEPTH = 1.5, 0.02, 4

    def filter(self, menu=None):
        return dm.Filter(self.EPSILON, self.DELTA, orders=[3.0, 9.0], weights=[0.5, 0.5], menu=menu)

    def reached(self, budget, read):
        return Game([RARE, OFTEN, OTHER], read).value(budget.account, self.DEPTH) / self.DELTA

    def test_without_a_menu(self):
        assert 0.5 < self.reached(self.filter(), reading) <= 1

    def test_with_a_menu_that_she_may_end(self):
        menu = make_menu((RARE, OFTEN), self.EPSILON, 0.89 * self.DELTA)
        assert self.reached(self.filter(menu), reading) <= 1

    def test_half_the_readings_would_be_found_out(self):
        assert self.reached(self.filter(), lambda account: 0.5 * account.epsilon) > 1
