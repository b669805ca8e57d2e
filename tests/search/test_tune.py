"""Whatever a search tries and drops, the gate holds every step and every score of it."""

import gc
import weakref

import numpy as np
import pytest
import torch
from dp_accounting.pld import PLDAccountant
from torch.utils.data import TensorDataset

import dosimeter as dm
from dosimeter.errors import StateError
from dosimeter.ledger import Budget, ConnectionLost, Kind, Ledger
from dosimeter.search import Uniform, tune
from dosimeter.training import fit

STEP, SCORE = dm.SampledGaussian(0.02, 2.0), dm.Gaussian(60.0)
RATE = {"rate": Uniform(1e-3, 1, log=True)}


@pytest.fixture
def budget(tmp_path):
    with Ledger.open(f"sqlite:///{tmp_path}/budgets.db") as ledger:
        yield ledger.create("search", epsilon=2.0, delta=1e-6)


@pytest.fixture
def whole():
    return dm.Filter(epsilon=2.0, delta=1e-6)


def quietly(*arguments, **options):
    return tune(*arguments, progress=False, **options)


def spends(budget):
    """Return what the journal says was spent."""
    return [(e.priced(), e.count) for e in budget.history(10_000) if e.kind is Kind.SPEND]


def replayed(spent):
    gate = dm.Filter(epsilon=2.0, delta=1e-6)
    for cost, count in spent:
        gate.spend(cost, count)
    return gate.epsilon


def rungs(settings, gate):
    """Train in three rungs with a best rate at 0.3, and score privately after each."""
    for rung in range(3):
        gate.spend(STEP, 4)
        gate.spend(SCORE)
        error = np.random.default_rng().normal(0, 0.1)
        yield -abs(np.log(settings["rate"] / 0.3)) + 0.1 * rung + error


def once(settings, gate):
    gate.spend(STEP, 4)
    gate.spend(SCORE)
    return -abs(settings["rate"] - 0.3), settings["rate"]


class TestCharges:
    def test_costs_of_all_trials_add_up_to_what_the_gate_holds(self, budget):
        found = quietly(rungs, RATE, budget, trials=(9, 3, 1))
        assert [len(trial.scores) for trial in found.trials].count(1) == 6
        spent = spends(budget)
        for cost in (STEP, SCORE):
            total = sum(trial.charged[cost] for trial in found.trials)
            assert total == sum(count for one, count in spent if one == cost) > 0
        assert replayed(spent) == budget.epsilon == found.epsilon <= 2.0

    def test_a_search_that_chooses_costs_by_scores_stays_within_the_filter(self, whole):
        """Noise, rate and length follow the scores; an exact accountant bounds the path."""
        spent, scores = [], [0.0]

        def greedy(settings, gate):
            rate = settings["rate"]
            step = dm.SampledGaussian(min(0.3, 0.01 + rate / 10), 1.0 + abs(max(scores)) * rate)
            for cost in (step, SCORE, step):
                while gate.admits(cost) and (cost is step or spent[-1] is not SCORE):
                    gate.spend(cost)
                    spent.append(cost)
                scores.append(-rate + np.random.default_rng().normal())
                yield scores[-1]

        quietly(greedy, RATE, whole, trials=(10, 4, 1))
        exact = PLDAccountant(value_discretization_interval=1e-3)
        for cost in set(spent):
            exact.compose(cost.dp_event(), spent.count(cost))
        assert exact.get_epsilon(1e-6) <= whole.epsilon <= 2.0

    def test_the_guarantee_is_that_of_the_whole_search(self, budget):
        found = quietly(once, RATE, budget, trials=3)
        assert found.guarantee == budget.guarantee()
        assert str(found.guarantee) in str(found)

    def test_equal_settings_are_tried_again_only_where_none_is_left(self, whole):
        found = quietly(once, {"rate": [0.1, 0.2, 0.3], "size": [1, 2]}, whole, trials=8)
        tried = [tuple(trial.settings.values()) for trial in found.trials]
        assert len(set(tried[:6])) == 6
        assert set(tried[6:]) < set(tried[:6])


class TestAllowances:
    def test_a_trial_that_asks_for_all_is_pruned_and_leaves_the_others_theirs(self, whole):
        most = whole.affordable(STEP)

        def greedy(settings, gate):
            while settings["greedy"] or gate.admits(STEP):
                gate.spend(STEP)
            return 1.0

        found = quietly(greedy, {"greedy": [True, False]}, whole, trials=4)
        kinds = {trial.settings["greedy"]: trial.ended for trial in found.trials}
        assert kinds == {True: "pruned", False: "completed"}
        counts = [trial.charged[STEP] for trial in found.trials]
        assert set(counts) <= {most // 4, most // 4 - 1}
        assert not found.settings["greedy"]
        pruned = next(trial for trial in found.trials if trial.settings["greedy"])
        assert "allowance of this trial" in pruned.reason

    def test_later_rungs_get_what_earlier_ones_left(self, whole):
        allowed = []

        def thrifty(settings, gate):
            for _ in range(2):
                allowed.append(gate.affordable(STEP))
                gate.spend(STEP)
                yield settings["rate"]

        most = whole.affordable(STEP)
        quietly(thrifty, RATE, whole, trials=(4, 1))
        assert set(allowed[:4]) <= {most // 7, most // 7 - 1}
        assert most - 8 <= allowed[4] <= most - 4

    @pytest.mark.parametrize(
        ("counts", "units"), [((27, 9, 3, 1), 81), ((8, 4, 2, 1), 20), ((16, 1), 31)]
    )
    def test_trials_that_grow_as_their_number_falls_use_the_whole_budget(self, counts, units):
        whole, most = dm.Filter(epsilon=8.0, delta=1e-6), []
        unit = whole.affordable(STEP) // units - 1

        def growing(settings, gate):
            taken = 0
            for count in counts:
                grown = unit * counts[0] // count
                gate.spend(STEP, grown - taken)
                taken = grown
                most.append(taken)
                yield settings["rate"]

        found = quietly(growing, RATE, whole, trials=counts)
        assert max(most) == unit * counts[0]
        assert {trial.ended for trial in found.trials} == {"completed", "pruned"}
        assert all("refused" not in trial.reason for trial in found.trials)

    def test_shares_are_of_what_others_left(self, whole):
        whole.spend(dm.Gaussian(20.0), whole.affordable(dm.Gaussian(20.0)) // 2)
        most = whole.affordable(STEP)

        def greedy(settings, gate):
            taken = 0
            while gate.admits(STEP):
                gate.spend(STEP)
                taken += 1
            return float(taken)

        found = quietly(greedy, RATE, whole, trials=3)
        counts = [trial.charged[STEP] for trial in found.trials]
        assert max(counts) - min(counts) <= 1
        assert most * 0.8 <= sum(counts) <= most

    def test_a_refused_trial_never_ends_the_search(self, budget):
        def dear(settings, gate):
            gate.spend(dm.Gaussian(settings["noise"]))
            return 0.0

        found = quietly(dear, {"noise": [0.1, 50.0], "seed": [1, 2]}, budget, trials=4)
        assert sorted(trial.ended for trial in found.trials) == ["completed"] * 2 + ["pruned"] * 2
        assert found.settings["noise"] == 50.0
        assert all(cost.noise_multiplier == 50.0 for cost, _ in spends(budget))

    def test_others_may_use_up_a_ledgers_budget_meanwhile(self, budget):
        """What was scored by then still has a winner."""

        def raced(settings, gate):
            for rung in range(2):
                if rung:
                    rest = dm.Gaussian(9.0)
                    while budget.admits(rest):
                        budget.spend(rest)
                    while budget.admits(STEP):
                        budget.spend(STEP)
                gate.spend(STEP)
                yield settings["rate"]

        found = quietly(raced, RATE, budget, trials=(4, 2))
        assert [trial.ended for trial in found.trials] == ["pruned"] * 4
        assert found.score == max(trial.scores[0] for trial in found.trials)


class Halving:
    """A generator function as an object."""

    def __call__(self, settings, gate):
        gate.spend(STEP)
        yield settings["rate"]
        yield settings["rate"]


class TestHalving:
    def test_an_object_may_yield(self, whole):
        found = quietly(Halving(), RATE, whole, trials=(2, 1))
        assert [trial.ended for trial in found.trials].count("completed") == 1

    def test_the_better_trials_go_on(self, whole):
        def exact(settings, gate):
            gate.spend(STEP)
            for rung in range(3):
                yield settings["rate"] + rung

        found = quietly(exact, RATE, whole, trials=(9, 3, 1))
        ranked = sorted(found.trials, key=lambda trial: -trial.settings["rate"])
        assert [len(trial.scores) for trial in ranked] == [3, 2, 2] + [1] * 6
        assert [trial.ended for trial in ranked] == ["completed"] + ["pruned"] * 8
        assert found.best == ranked[0]
        assert found.score == ranked[0].settings["rate"] + 2
        assert [trial.reason for trial in ranked[-2:]] == [
            "it was number 8 of 9 in rung 1",
            "it was number 9 of 9 in rung 1",
        ]

    def test_one_number_runs_all_trials_to_their_end(self, whole):
        found = quietly(rungs, RATE, whole, trials=3)
        assert [(len(trial.scores), trial.ended) for trial in found.trials] == [
            (3, "completed")
        ] * 3

    def test_a_dropped_trial_lets_go_of_what_it_holds(self, whole):
        models, alive = [], []

        class Model:
            pass

        def holding(settings, gate):
            model = Model()
            models.append(weakref.ref(model))
            gate.spend(STEP)
            yield settings["rate"]
            gc.collect()
            alive.append(sum(ref() is not None for ref in models))
            yield settings["rate"]

        quietly(holding, RATE, whole, trials=(4, 1))
        assert alive == [1]

    def test_a_lost_trial_lets_go_of_what_it_holds(self, whole):
        held = []

        class Model:
            pass

        def failing(settings, gate):
            model = Model()
            gate.spend(STEP)
            held.append(weakref.ref(model))
            if len(held) == 1:
                raise RuntimeError("out of memory")
            gc.collect()
            return float(held[0]() is None)

        assert quietly(failing, RATE, whole, trials=2).score == 1.0

    def test_the_result_of_the_best_trial_is_kept(self, whole):
        found = quietly(once, RATE, whole, trials=4)
        assert found.best.result == found.settings["rate"]
        assert found.score == -abs(found.best.result - 0.3)
        assert found.best.result == min(
            (t.result for t in found.trials), key=lambda r: abs(r - 0.3)
        )

    def test_it_works_with_fit(self, budget):
        x = torch.randn(64, 2)
        data = TensorDataset(x, (x[:, 0] > 0).long())

        def training(settings, gate):
            model = torch.nn.Linear(2, 2)
            for _ in range(2):
                fit(model, data, gate, epochs=1, batch_size=settings["batch"],
                    noise_multiplier=4.0, progress=False)  # fmt: skip
                yield 0.0, model

        found = quietly(training, {"batch": [8, 16, 128]}, budget, trials=(2, 1))
        assert isinstance(found.best.result, torch.nn.Linear)
        assert sum(sum(trial.charged.values()) for trial in found.trials) == sum(
            count for _, count in spends(budget)
        )


class TestErrors:
    def test_a_trial_that_raises_is_lost_and_stays_paid_for(self, budget):
        def failing(settings, gate):
            gate.spend(STEP)
            if settings["bad"]:
                raise RuntimeError("no more memory")
            return 0.0

        found = quietly(failing, {"bad": [True, False]}, budget, trials=2)
        lost = next(trial for trial in found.trials if trial.settings["bad"])
        assert (lost.ended, lost.reason) == ("lost", "it raised RuntimeError: no more memory")
        assert lost.charged == {STEP: 1}
        assert spends(budget) == [(STEP, 1)] * 2
        assert found.settings == {"bad": False}
        assert "lost: it raised RuntimeError: no more memory" in str(found)

    def test_a_lost_trial_does_not_win_by_an_earlier_score(self, whole):
        def failing(settings, gate):
            gate.spend(STEP)
            yield settings["rate"]
            raise RuntimeError("it exploded")

        found = quietly(failing, {"rate": [0.1, 0.2, 0.3]}, whole, trials=(3, 1))
        assert found.settings == {"rate": 0.2}

    @pytest.mark.parametrize("score", [float("nan"), float("inf"), "good", None, (1.0, 2, 3)])
    def test_a_score_that_is_no_number_never_wins(self, whole, score):
        def scoring(settings, gate):
            gate.spend(STEP)
            return score if settings["bad"] else -1e9

        found = quietly(scoring, {"bad": [True, False]}, whole, trials=2)
        assert found.score == -1e9
        assert {trial.ended for trial in found.trials} == {"completed", "lost"}

    def test_impossible_settings_are_skipped_at_no_cost(self, budget):
        """A real engine refuses a batch that is larger than the data before it charges."""
        data = TensorDataset(torch.zeros(16, 2), torch.arange(16) % 2)

        def training(settings, gate):
            fit(torch.nn.Linear(2, 2), data, gate, epochs=1, batch_size=settings["batch"],
                noise_multiplier=4.0, progress=False)  # fmt: skip
            return 0.0

        found = quietly(training, {"batch": [8, 64, 128]}, budget, trials=2)
        skipped = [trial for trial in found.trials if trial.ended == "skipped"]
        assert len(found.trials) - len(skipped) == 2
        assert all("batch_size" in trial.reason and not trial.charged for trial in skipped)
        assert sum(count for _, count in spends(budget)) == 4

    def test_a_space_of_impossible_settings_ends_the_search_at_no_cost(self, whole):
        def mistaken(settings, gate):
            return settings["raet"]

        with pytest.raises(
            ValueError, match="100 errors in a row; the last was skipped: it raised Key"
        ) as e:
            quietly(mistaken, RATE, whole, trials=2)
        assert "in mistaken" in "".join(e.value.__notes__)
        assert whole.epsilon == 0

    @pytest.mark.parametrize(
        ("error", "words"),
        [(RuntimeError("no"), "the last was lost: it raised"), (None, "the last was pruned: ")],
    )
    def test_a_search_without_a_score_says_why(self, whole, error, words):
        def failing(settings, gate):
            gate.spend(STEP)
            if error is None:
                gate.spend(dm.Gaussian(0.01))
            raise error

        with pytest.raises(ValueError, match="must bring one trial to a score, got none") as e:
            quietly(failing, RATE, whole, trials=3)
        assert words in str(e.value)
        assert ("in failing" in "".join(getattr(e.value, "__notes__", ()))) == (error is not None)
        assert whole.epsilon == replayed([(STEP, 1)] * 3)

    @pytest.mark.parametrize(
        "error", [ConnectionLost("the server went away", True), StateError("x"), OSError("x")]
    )
    def test_an_error_of_the_ledger_or_a_file_ends_the_search(self, budget, monkeypatch, error):
        spend, calls = Budget.spend, []

        def away(self, cost, count=1, **options):
            calls.append(cost)
            if len(calls) == 4:
                raise error
            return spend(self, cost, count, **options)

        monkeypatch.setattr(Budget, "spend", away)
        with pytest.raises(type(error)) as raised:
            quietly(once, RATE, budget, trials=4)
        assert "the best score was" in "".join(raised.value.__notes__)
        assert len(spends(budget)) == 3

    def test_an_interrupted_search_says_what_was_found_and_stays_paid_for(self, budget):
        closed = []

        def interrupted(settings, gate):
            try:
                gate.spend(STEP)
                yield settings["rate"]
                raise KeyboardInterrupt
            finally:
                closed.append(settings["rate"])

        with pytest.raises(KeyboardInterrupt) as raised:
            quietly(interrupted, RATE, budget, trials=(3, 2))
        (note,) = raised.value.__notes__
        assert f"the best score was {max(closed):.4g}, of rate {max(closed):.4g}" in note
        assert "what it spent stays spent" in note
        assert len(closed) == 3
        assert spends(budget) == [(STEP, 1)] * 3


def never(settings, gate):
    raise AssertionError


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"objective": 3}, TypeError, "objective must be a function"),
        ({"space": {}}, TypeError, "space must map names"),
        ({"gate": dm.Odometer(delta=1e-6)}, TypeError, "a budget with a limit"),
        ({"gate": None}, TypeError, "a budget with a limit"),
        ({"trials": 0}, ValueError, "trials must be between 1"),
        ({"trials": True}, TypeError, "trials must be a whole number"),
        ({"trials": 2.5}, TypeError, "trials must be a whole number"),
        ({"trials": ()}, ValueError, "trials must fall from rung to rung"),
        ({"trials": (3, 3)}, ValueError, "trials must fall from rung to rung"),
        ({"trials": "93"}, TypeError, "trials must be a whole number"),
        ({"trials": (9, 3)}, TypeError, "objective must be a generator function"),
    ],
)
def test_bad_input_is_refused_before_anything_is_spent(whole, changes, error, words):
    arguments = {"objective": never, "space": RATE, "gate": whole, "trials": 2, **changes}
    with pytest.raises(error, match=words):
        tune(**arguments)
    assert whole.epsilon == 0


def test_a_budget_that_is_used_up_is_refused(whole):
    whole.spend(dm.PureDp(2.0))
    assert whole.spent_share == 1.0
    with pytest.raises(ValueError, match="gate must have budget left"):
        quietly(never, RATE, whole, trials=2)


def test_progress_is_one_line_a_score(whole, capsys):
    tune(rungs, RATE, whole, trials=(3, 1))
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 5
    assert all(line.startswith("trial ") and " of 2" in line for line in err.splitlines())
    quietly(rungs, RATE, whole, trials=2)
    assert capsys.readouterr() == ("", "")


def test_a_result_prints_as_a_table(whole):
    found = quietly(rungs, RATE, whole, trials=(3, 1))
    first, second, head, *rows = str(found).splitlines()
    assert first.startswith(f"best: trial {found.best.number} (rate ")
    assert "(2.0, 1e-06)-DP" in second
    assert head.split() == ["trial", "settings", "scores", "charged", "ended"]
    for row, trial in zip(rows, found.trials, strict=True):
        runs = len(trial.scores)
        assert row.startswith(f"{trial.number}      rate ")
        words = f"{4 * runs} SampledGaussian, {runs} Gaussian {trial.ended}"
        assert words in " ".join(row.split())
