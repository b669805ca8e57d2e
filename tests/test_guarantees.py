"""Every epsilon that is printed, against a lower bound on the truth of what it is printed for.

Each test stands for rows of the tables in docs/guarantees.md and docs/prices.md, or for a command.
Were the printed number too small, the lower bound would pass delta; so it does at a number that is
smaller by as much as each rule is loose. Menus and ladders have accounting/priced/test_search.py.
"""

import math

import dp_accounting as dpa
import numpy as np
import pytest
from dp_accounting import dp_event
from scipy.stats import norm

import dosimeter as dm
from adversaries import player
from adversaries.observer import seen_of
from adversaries.pairs import outputs
from configs import changed
from dosimeter.accounting import classic
from dosimeter.compare import compare, plan
from dosimeter.ledger import Ledger
from dosimeter.runs.budgets import Needs
from dosimeter.runs.reader import config_from

DELTA = 1e-6
STEP = dm.SampledGaussian(0.02, 1.0)
SPENT = [(STEP, 300), (dm.Gaussian(20.0), 5), (dm.Laplace(15.0), 3)]


def holds(spent, epsilon, delta=DELTA):
    return seen_of(spent, epsilon, delta) <= delta


def spend(gate, spent):
    for cost, count in spent:
        gate.spend(cost, count)
    return gate


class TestCurves:
    """ "Cost curves bound both directions": the Rényi divergence of rounded outputs is below."""

    ORDERS = (1.25, 2.0, 3.5, 8.0, 32.0)

    @staticmethod
    def divergence(p, q, order):
        """D of two distributions of finitely many outputs."""
        seen = (p > 0) & (q > 0)
        logs = order * np.log(p[seen]) - (order - 1) * np.log(q[seen])
        return float(np.logaddexp.reduce(logs)) / (order - 1)

    def below(self, cost, order):
        seen = outputs(cost)
        return max(self.divergence(*pair, order) for pair in ((seen.p, seen.q), (seen.q, seen.p)))

    @pytest.mark.parametrize(
        "cost",
        [
            *(dm.SampledGaussian(q, s) for q in (1e-3, 0.05, 0.7) for s in (0.5, 1.0, 6.0)),
            *(dm.Gaussian(s) for s in (0.5, 1.0, 30.0)),
            *(dm.Laplace(b) for b in (0.5, 2.0, 40.0)),
            *(dm.PureDp(e) for e in (0.01, 1.0, 5.0)),
        ],
        ids=repr,
    )
    def test_are_not_below_rounded_outputs_and_near_them(self, cost):
        for order, claimed in zip(self.ORDERS, cost.rdp(self.ORDERS), strict=True):
            below = self.below(cost, order)
            assert claimed >= below * (1 - 1e-9) - 1e-14
            # Outputs far out, which a high order weighs most, are seen as one.
            if order / getattr(cost, "noise_multiplier", 10.0) < 8:
                assert below >= 0.99 * claimed - 1e-9

    @pytest.mark.parametrize(("mean", "shape"), [(3.0, 1.0), (10.0, 1.0), (5.0, math.inf)])
    def test_of_repeat_and_select_are_not_below_the_best_of_some_thresholds(self, mean, shape):
        """A run says whether its noisy count passes t; selected is one that does, if any."""
        cost = dm.Event(dp_event.RepeatAndSelectDpEvent(dpa.GaussianDpEvent(2.0), mean, shape))

        def some(chance):
            if shape == math.inf:
                return -np.expm1(-mean * chance)
            return chance / (1 - (1 - 1 / mean) * (1 - chance))

        for t in np.linspace(-4.0, 8.0, 25):
            p, q = some(norm.sf((t - 1) / 2)), some(norm.sf(t / 2))
            worlds = np.array([p, 1 - p]), np.array([q, 1 - q])
            for order, claimed in zip(self.ORDERS, cost.rdp(self.ORDERS), strict=True):
                assert claimed >= self.divergence(*worlds, order)
                assert claimed >= self.divergence(*worlds[::-1], order)

    def test_of_events_are_not_below_their_parts(self):
        gaussians = dpa.ComposedDpEvent([dpa.GaussianDpEvent(2.0), dpa.GaussianDpEvent(3.0)])
        sampled = dpa.PoissonSampledDpEvent(0.05, gaussians)
        event = dpa.ComposedDpEvent([dpa.SelfComposedDpEvent(sampled, 40), dpa.LaplaceDpEvent(4.0)])
        # Both Gaussians of one sample are one with the noise that their precisions sum to.
        one = dm.SampledGaussian(0.05, (2.0**-2 + 3.0**-2) ** -0.5)
        for order, claimed in zip(self.ORDERS, dm.Event(event).rdp(self.ORDERS), strict=True):
            below = 40 * self.below(one, order) + self.below(dm.Laplace(4.0), order)
            assert claimed >= below * (1 - 1e-9)
        gate = spend(dm.Odometer(DELTA), [(dm.Event(event), 3)])
        spent = [(one, 120), (dm.Laplace(4.0), 3)]
        assert holds(spent, gate.epsilon)
        assert not holds(spent, 0.8 * gate.epsilon)


class TestGates:
    def test_the_mixtures_of_a_filter_and_an_odometer(self):
        gate = dm.Filter(3.0, DELTA)
        most = gate.affordable(STEP)
        assert holds([(STEP, most)], 3.0)
        assert not holds([(STEP, 2 * most)], 3.0)
        reading = spend(dm.Odometer(DELTA), SPENT).epsilon
        assert holds(SPENT, reading)
        assert not holds(SPENT, 0.7 * reading)

    @pytest.mark.parametrize("chance", [1e-4, 2.5e-5, 3e-7])
    def test_failures_and_losses_are_within_the_sum_of_both_deltas(self, chance):
        """Runs that may fail show all if they do; the others, and Gaussians, are seen besides."""
        gate = dm.Filter(1.0, DELTA, approx_delta=1e-3)
        cost, rest = dm.ApproxDp(0.01, chance), dm.Gaussian(100.0)
        count = gate.affordable(cost)
        gate.spend(cost, count)
        left = gate.affordable(rest)
        if left:
            gate.spend(rest, left)

        def reached(runs):
            failed = -math.expm1(runs * math.log1p(-chance))
            spent = [(dm.PureDp(0.01), runs), *([(rest, left)] if left else [])]
            return failed + (1 - failed) * seen_of(spent, 1.0, DELTA)

        assert 0 < reached(count) <= DELTA + 1e-3
        if count * chance > 0.9e-3:  # it is failures that it ended for
            assert reached(count + 2) > 1e-3

    def test_readings_at_the_worst_moment(self):
        gate, read = dm.Odometer(1e-3), []
        for _ in range(30):
            gate.spend(dm.PureDp(0.2), 2)
            read.append(gate.epsilon)
        reached = player.stopped(dm.PureDp(0.2), [2], read, 1e-3)
        assert 0.05e-3 < reached <= 1e-3
        assert player.stopped(dm.PureDp(0.2), [2], [0.7 * e for e in read], 1e-3) > 1e-3

    def test_loss_bounds_hold_at_all_times_at_once(self):
        """Randomised response is a walk: how often does it ever leave the bounds?"""
        delta, size, rounds = 0.05, 0.3, 200
        up = 1 / (1 + math.exp(-size))
        for name in ("loss_bound", "two_sided_loss_bound"):
            gate, walk, left = dm.Odometer(delta), {0: 1.0}, 0.0
            for _ in range(rounds):
                gate.spend(dm.PureDp(size))
                bound, after = getattr(gate, name), {}
                for place, chance in walk.items():
                    for step, part in ((1, up), (-1, 1 - up)):
                        loss = (place + step) * size
                        if loss > bound or (name != "loss_bound" and loss < -bound):
                            left += chance * part
                        else:
                            after[place + step] = after.get(place + step, 0.0) + chance * part
                walk = after
            assert 0.01 * delta < left <= delta

    def test_a_ledger_that_was_opened_again(self, tmp_path):
        url = f"sqlite:///{tmp_path / 'budgets.db'}"
        with Ledger.open(url) as ledger:
            ledger.create("filter", 2.0, DELTA)
            ledger.create_odometer("odometer", DELTA)
            spend(ledger["odometer"], SPENT[:2])
        query, total = dm.Gaussian(20.0), 0
        for size in (20, 5, 1):
            with Ledger.open(url) as ledger:
                while ledger["filter"].admits(query, size):
                    ledger["filter"].spend(query, size)
                    total += size
        assert holds([(query, total)], 2.0)
        assert not holds([(query, 2 * total)], 2.0)
        with Ledger.open(url) as ledger:
            spend(ledger["odometer"], SPENT[2:])
            reading = ledger["odometer"].epsilon
        assert holds(SPENT, reading)
        assert not holds(SPENT, 0.7 * reading)


PURE = [(dm.PureDp(0.1), 150)]
CLASSIC = {
    "basic": (classic.BasicComposition(delta=DELTA), PURE),
    "advanced": (classic.AdvancedComposition(delta=DELTA), PURE),
    "Rogers filter": (classic.RogersFilter(50.0, DELTA), PURE),
    "Rényi, tight": (classic.RdpComposition(delta=DELTA), SPENT),
    "Rényi, tail": (
        classic.RdpComposition(delta=DELTA, conversion=classic.Conversion.TAIL),
        SPENT,
    ),
    "PLD": (classic.PldComposition(delta=DELTA, discretization=1e-3), SPENT),
    "one order": (classic.FixedOrderFilter(50.0, DELTA, order=6.0), SPENT),
    "one order, tail": (classic.SingleOrderFilter(50.0, DELTA, order=6.0), SPENT),
    "Lécuyer's odometer": (classic.LecuyerOdometer(DELTA), SPENT),
    "stacked filters": (classic.StackedOdometer(DELTA, order=6.0, size=0.5), SPENT),
}
TIGHT = {"Rényi, tight": 0.85, "PLD": 0.98, "one order": 0.8}


class TestClassic:
    @pytest.mark.parametrize(("rule", "spent"), CLASSIC.values(), ids=CLASSIC.keys())
    def test_rules_do_not_read_too_little(self, rule, spent, request):
        assert holds(spent, spend(rule, spent).epsilon)
        teeth = TIGHT.get(request.node.callspec.id, 0.0)
        if teeth:
            assert not holds(spent, teeth * rule.epsilon)

    def test_an_anytime_rule_holds_at_the_worst_moment(self):
        rule, read = classic.LecuyerOdometer(1e-3), []
        for _ in range(20):
            rule.spend(dm.PureDp(0.2), 3)
            read.append(rule.epsilon)
        assert player.stopped(dm.PureDp(0.2), [3], read, 1e-3) <= 1e-3


class TestCommands:
    @pytest.mark.parametrize("rate", [1.0, 0.1])
    def test_plan_finds_no_noise_that_is_too_little(self, rate):
        made = plan(2.0, 1e-5, steps=20, sample_rate=rate)
        for row in made.rows:
            assert holds([(row.cost, row.steps)], made.epsilon, 1e-5), row.rule
        exact = made.rows[-1]
        assert not holds([(exact.cost, math.ceil(1.1 * exact.steps))], made.epsilon, 1e-5)

    def test_plan_counts_no_steps_too_many(self):
        made = plan(1.5, DELTA, cost=dm.Gaussian(25.0))
        for row in made.rows:
            assert holds([(row.cost, row.steps)], made.epsilon), row.rule
        assert not holds([(made.cost, math.ceil(1.02 * made.rows[-1].steps))], made.epsilon)

    def test_compare_shows_no_epsilon_too_small(self):
        schedule = [(dm.SampledGaussian(0.05, 1.5), 60), (dm.SampledGaussian(0.1, 1.5), 20)]
        shown = compare(schedule, 1e-5, points=2, menu=False)
        for line in shown.lines:
            # What is unsound under adaptive choices holds for a schedule fixed beforehand.
            assert holds(schedule, line.last, 1e-5), line.name
        assert not holds(schedule, 0.98 * shown.limit.last, 1e-5)

    def test_nor_for_menus(self):
        schedule = [(dm.Gaussian(20.0), 30)]
        shown = compare(schedule, 1e-5, points=1)
        menus = {line.name: line.last for line in shown.lines if "menu" in line.name}
        assert len(menus) == 2
        for name, epsilon in menus.items():
            assert holds(schedule, epsilon, 1e-5), name
            assert not holds(schedule, 0.95 * epsilon, 1e-5), name

    def test_train_takes_no_noise_too_little(self):
        asked = config_from(changed(training={"noise_multiplier": None, "epochs": 50}))
        training = Needs(asked, records=120)
        cost = training.cost(training.noise)
        assert holds([(cost, training.steps)], asked.budget.epsilon, asked.budget.delta)
        less = training.cost(0.98 * training.noise)
        assert not holds([(less, training.steps)], asked.budget.epsilon, asked.budget.delta)
