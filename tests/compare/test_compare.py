"""Comparisons and plans: figures that are known, files that are wrong, pictures that are whole."""

import csv
import json
import math

import pytest
from mpmath import mp, mpf

import dosimeter as dm
from dosimeter.accounting.classic import PldComposition, RdpComposition, Validity
from dosimeter.compare import compare, plan, read_schedule
from dosimeter.compare.exact import ExactTotal
from dosimeter.compare.plot import save_plot
from dosimeter.compare.schedule import checkpoints, upto

STEP = dm.SampledGaussian(512 / 50000, 1.0)
DELTA = 1e-6


@pytest.fixture(scope="module")
def comparison():
    told = []
    result = compare(
        [(STEP, 4900), (dm.Gaussian(100.0), 50), (STEP, 4900)],
        DELTA,
        points=4,
        menu=False,
        progress=lambda what, share: told.append((what, share)),
    )
    assert told[0][1] == 0
    assert told[-1] == ("done", 1.0)
    return result


class TestCompare:
    def test_the_limit_is_dp_accountings(self, comparison):
        exact = PldComposition(delta=DELTA)
        exact.spend(STEP, 9800)
        exact.spend(dm.Gaussian(100.0), 50)
        assert comparison.limit.last == pytest.approx(exact.epsilon, rel=1e-3)

    @pytest.mark.parametrize(
        ("rate", "noise", "steps", "epsilon"),
        [
            pytest.param(1e-4, 0.7, 100_000, 0.36326, marks=pytest.mark.slow),
            (1e-4, 1.0, 100_000, 0.15693),
            (1e-3, 0.6, 10_000, 3.15223),
            (0.2, 8.0, 3_000, 7.07065),
        ],
    )
    def test_the_limit_is_as_fine_as_the_losses(self, rate, noise, steps, epsilon):
        """Against dp-accounting with intervals of 1e-4 or a twentieth of a run's deviation."""
        rows = [(dm.SampledGaussian(rate, noise), steps)]
        total = ExactTotal(rows, DELTA)
        for row in rows:
            total.add(*row)
        assert total.epsilon == pytest.approx(epsilon, rel=2e-3)

    def test_the_limit_of_pure_epsilons_is_that_of_randomised_response(self):
        """P(loss > l) by the binomial distribution: 100 answers with epsilon 0.1."""
        total = ExactTotal([(dm.PureDp(0.1), 100)], DELTA)
        total.add(dm.PureDp(0.1), 100)
        with mp.workdps(30):
            p = 1 / (1 + mp.exp(-mpf("0.1")))

            def delta(epsilon):
                return mp.fsum(
                    mp.binomial(100, k) * p**k * (1 - p) ** (100 - k)
                    * max(0, 1 - mp.exp(epsilon - mpf("0.1") * (2 * k - 100)))
                    for k in range(101)
                )  # fmt: skip

            assert delta(total.epsilon) <= DELTA <= delta(0.995 * total.epsilon)

    def test_a_cost_without_a_loss_distribution_is_refused(self):
        with pytest.raises(ValueError, match=r"^schedule must hold costs with a known loss"):
            compare([(dm.Zcdp(0.1), 3)], DELTA)

    def test_every_line_rises_and_is_above_the_limit(self, comparison):
        assert comparison.steps[-1] == 9850
        for line in comparison.lines:
            assert len(line.epsilons) == len(comparison.steps)
            assert list(line.epsilons) == sorted(line.epsilons)
            for value, least in zip(line.epsilons, comparison.limit.epsilons, strict=True):
                assert value >= least * 0.999

    def test_names_what_each_rule_is_worth(self, comparison):
        worth = {line.name: line.validity for line in comparison.lines}
        assert worth["some order within budget"] is Validity.UNSOUND
        assert worth["odometer"] is Validity.ANYTIME
        assert worth["filter"] is Validity.FILTER
        assert worth["PLD, fixed beforehand"] is Validity.FIXED
        assert {line.name for line in comparison.lines if line.ours} == {"odometer", "filter"}

    def test_rules_for_pure_epsilons_have_no_bound_here(self, comparison):
        last = {line.name: line.last for line in comparison.lines}
        assert last["basic composition"] == last["Rogers' filter"] == math.inf

    def test_rules_for_pure_epsilons_read_pure_costs(self):
        result = compare([(dm.Laplace(50.0), 20)], DELTA, points=2, menu=False)
        last = {line.name: line.last for line in result.lines}
        assert last["basic composition"] == pytest.approx(0.4)
        assert result.limit.last < last["Rogers' filter"] < 2.0
        assert last["odometer"] <= last["basic composition"] * (1 + 1e-9)

    @pytest.mark.slow
    def test_with_menus(self):
        result = compare([(dm.Gaussian(50.0), 400)], DELTA, points=3)
        lines = {line.name: line for line in result.lines}
        assert lines["filter with a menu"].last <= 1.03 * result.limit.last
        assert math.isnan(lines["filter with a menu"].epsilons[0])
        assert lines["odometer with a menu, planned"].last <= 1.06 * result.limit.last

    def test_csv_holds_every_reading(self, comparison, tmp_path):
        comparison.write_csv(tmp_path / "out.csv")
        with (tmp_path / "out.csv").open() as file:
            rows = list(csv.DictReader(file))
        assert len(rows) == 4 * len(comparison.lines)
        assert rows[0]["rule"] == "PLD, fixed beforehand"
        assert float(rows[3]["epsilon"]) == comparison.limit.last

    @pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
    def test_pictures_are_written(self, comparison, tmp_path, suffix):
        path = tmp_path / f"out.{suffix}"
        save_plot(comparison, path)
        assert path.stat().st_size > 10_000

    def test_other_pictures_are_refused(self, comparison, tmp_path):
        with pytest.raises(ValueError, match="plot must end in"):
            save_plot(comparison, tmp_path / "out.html")

    @pytest.mark.parametrize("schedule", [[], [(STEP, 0)]])
    def test_bad_schedules_are_refused(self, schedule):
        with pytest.raises(ValueError, match="must"):
            compare(schedule, DELTA)
        with pytest.raises(TypeError, match="schedule must hold pairs"):
            compare([(1.0, 2)], DELTA)


class TestSchedules:
    ROWS = ((100, 0.01, 1.0), (7, 1.0, 20.0))
    COSTS = ((dm.SampledGaussian(0.01, 1.0), 100), (dm.Gaussian(20.0), 7))

    def test_are_read_from_csv_and_json(self, tmp_path):
        names = ("steps", "sample_rate", "noise_multiplier")
        path = tmp_path / "schedule.csv"
        path.write_text("\n".join([",".join(names), "100,0.01,1.0", "7,1,20"]) + "\n")
        assert read_schedule(path) == self.COSTS
        path = tmp_path / "schedule.json"
        path.write_text(json.dumps([dict(zip(names, row, strict=True)) for row in self.ROWS]))
        assert read_schedule(path) == self.COSTS

    @pytest.mark.parametrize(
        ("name", "text", "reason"),
        [
            ("a.csv", "", "at least one row"),
            ("a.csv", "steps,noise_multiplier\n1,2\n", "row 1 must have exactly"),
            ("a.csv", "steps,sample_rate,noise_multiplier\n1.5,0.1,1\n", "whole number"),
            ("a.csv", "steps,sample_rate,noise_multiplier\n1,0.1,nan\n", "row 1: noise_multiplier"),
            ("a.csv", "steps,sample_rate,noise_multiplier\n1,x,1\n", "row 1"),
            ("a.csv", "steps,sample_rate,noise_multiplier\n1,0,1\n", "row 1: sample_rate"),
            ("a.csv", "steps,sample_rate,noise_multiplier\ninf,0.1,1\n", "row 1"),
            ("a.json", "{}", "a list of rows"),
            ("a.json", "[1]", "row 1 must have exactly"),
            ("a.json", "[", "Expecting"),
            ("a.txt", "", r"\.csv or \.json"),
        ],
    )
    def test_wrong_files_are_refused(self, tmp_path, name, text, reason):
        (tmp_path / name).write_text(text)
        with pytest.raises(ValueError, match=reason):
            read_schedule(tmp_path / name)

    def test_parts_add_up(self):
        whole = [(STEP, 10), (dm.Gaussian(1.0), 5), (STEP, 3)]
        stops = checkpoints(whole, 4)
        assert stops[-1] == 18
        total = 0
        for start, stop in zip([0, *stops], stops, strict=False):
            total += sum(count for _, count in upto(whole, start, stop))
        assert total == 18
        assert upto(whole, 9, 12) == [(STEP, 1), (dm.Gaussian(1.0), 2)]


class TestPlans:
    def test_the_price_of_being_adaptive(self):
        made = plan(3.0, DELTA, cost=dm.Gaussian(40.0))
        menu, mixture, rdp, exact = (row.steps for row in made.rows)
        assert 0.97 * exact <= menu <= exact
        assert mixture <= rdp <= exact
        assert made.steps == menu
        assert "filter with a menu" in str(made)

    def test_the_least_noise(self):
        made = plan(3.0, DELTA, steps=500, sample_rate=0.02)
        assert made.steps == 500
        assert made.cost.sample_rate == 0.02
        assert 500 <= dm.Filter(3.0, DELTA, menu=[made.cost]).affordable(made.cost) <= 510

    def test_the_least_noise_of_each_rule_is_its_own(self):
        menu, plain, renyi, pld = plan(1.0, DELTA, steps=10).rows
        noises = [row.cost.noise_multiplier for row in (pld, menu, renyi, plain)]
        assert noises == sorted(noises)

        def readings(noise):
            rules = PldComposition(delta=DELTA), RdpComposition(delta=DELTA)
            for rule in rules:
                rule.spend(dm.Gaussian(noise), 10)
            return [rule.epsilon for rule in rules]

        for noise, enough in ((1.0, True), (0.998, False)):
            cost = dm.Gaussian(plain.cost.noise_multiplier * noise)
            assert dm.Filter(1.0, DELTA).admits(cost, 10) is enough
            assert (readings(renyi.cost.noise_multiplier * noise)[1] <= 1.0) is enough
        for noise in (1.005, 0.995):
            assert (readings(pld.cost.noise_multiplier * noise)[0] <= 1.0) is (noise > 1)

    def test_steps_that_no_noise_affords_are_refused(self):
        with pytest.raises(ValueError, match="steps must be affordable with noise 10000, got 10"):
            plan(0.01, DELTA, steps=10**15)

    def test_a_run_that_does_not_fit_is_zero_steps(self):
        assert plan(0.5, DELTA, cost=dm.Gaussian(1.0)).steps == 0

    def test_needs_one_of_both(self):
        with pytest.raises(ValueError, match="a cost or steps"):
            plan(1.0, DELTA)
        with pytest.raises(ValueError, match="a cost or steps"):
            plan(1.0, DELTA, cost=STEP, steps=3)


def test_a_delta_for_which_nothing_need_be_spent():
    """Halving the limit went on to 0, which no filter takes."""
    found = compare([(dm.Gaussian(1000.0), 1)], 0.5, menu=False)
    (ours,) = [line for line in found.lines if line.name == "filter"]
    assert 0 <= ours.epsilons[-1] < 1e-6
