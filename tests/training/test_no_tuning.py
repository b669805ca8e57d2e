"""fit with nothing but (epsilon, delta): what it chooses, what it refuses, and how it ends."""

import math
from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import dosimeter as dm
from dosimeter.training import (
    AutoRate,
    Clipping,
    Following,
    History,
    Horizon,
    PrivateEngine,
    RootBatch,
    fit,
)
from dosimeter.training.onepass import Book
from dosimeter.training.onepass.entries import Rows
from dosimeter.training.planning import HELD, records_at_once
from experiments.no_tuning import tasks

FEW = {"progress": False, "epochs": Horizon(60)}


def test_epsilon_and_delta_are_enough(points, classifier):
    gates = []
    history = fit(
        classifier(), points(count=400), epsilon=3, delta=1e-6, public=points(seed=1),
        progress=False, seed=1, callbacks=[lambda engine, _: gates.append(engine.gate)],
    )  # fmt: skip
    assert history[0].batch_size == RootBatch()(400) == 200
    assert history.steps == 400
    assert 2.9 < history.epsilon <= 3
    assert gates[-1].menu is not None
    assert history.accuracy > 0.85
    assert "(3.0, 1e-06)-DP" in history.guarantee or "(3, 1e-06)-DP" in history.guarantee


def test_a_replay_gives_the_same_rates_and_the_same_epsilon(points, classifier, tmp_path):
    history = fit(classifier(), points(), epsilon=3, delta=1e-6, seed=3, **FEW)
    history.save(tmp_path / "history.json")
    again = History.load(tmp_path / "history.json")
    assert again == history
    noise, batch = history[0].noise_multiplier, history[0].batch_size
    values = sum(p.numel() for p in classifier().parameters())
    began = {"steps": 60, "noise": noise * math.sqrt(values) / batch, "bound": 1.0}
    assert again.began == pytest.approx(began)
    assert again.replay_rates(AutoRate()) == [epoch.learning_rate for epoch in history]
    gate = dm.Filter(3, 1e-6, menu=[dm.SampledGaussian(batch / 200, noise)])
    again.replay([], gate)
    assert gate.epsilon == history.epsilon
    assert len({epoch.learning_rate for epoch in history}) > 1


def test_a_run_that_chose_for_itself_goes_on_from_its_checkpoint(points, classifier, tmp_path):
    def interrupt(engine, record):
        if record.epoch == 20:
            raise KeyboardInterrupt

    path, models = tmp_path / "run.pt", [classifier(), classifier(), classifier()]
    rules = {"epsilon": 3, "delta": 1e-6, "seed": 3, **FEW}
    with pytest.raises(KeyboardInterrupt):
        fit(models[0], points(), checkpoint=path, callbacks=[interrupt], **rules)
    resumed = fit(models[1], points(), checkpoint=path, **rules)
    whole = fit(models[2], points(), **rules)
    for name in ("learning_rate", "evidence", "noise_multiplier"):
        assert [getattr(e, name) for e in resumed] == [getattr(e, name) for e in whole]
    for one, other in zip(models[1].parameters(), models[2].parameters(), strict=True):
        assert torch.equal(one, other)  # both left with the average


def test_every_choice_can_be_replaced(points, classifier):
    seen = []
    history = fit(
        classifier(), points(), epsilon=8, delta=1e-6, epochs=lambda steps: 2 * steps,
        batch_size=RootBatch(scale=5), learning_rate=AutoRate(reach=3.0, momentum=0.5),
        max_grad_norm=0.5, progress=False,
        callbacks=[lambda engine, _: seen.append(engine.made[1])],
    )  # fmt: skip
    assert history[0].batch_size == 71
    assert len(history) == 6
    assert seen[0].param_groups[0]["momentum"] == 0.5
    assert seen[0].max_grad_norm == 0.5
    fixed = fit(classifier(), points(), epsilon=8, delta=1e-6, epochs=1, learning_rate=0.1,
                progress=False)  # fmt: skip
    assert fixed[0].learning_rate is None
    with pytest.raises(ValueError, match="history must be of a run with a rule for its learning"):
        fixed.replay_rates(AutoRate())


class Falling:
    """A rule of one's own: all that a `RateRule` must have, and no part of the library."""

    momentum = 0.0

    def __init__(self):
        self.rate, self.told = math.nan, {}

    def begin(self, **told):
        self.told, self.rate = told, 1.0

    def update(self, length):
        self.rate *= 0.5 if length > 0 else 1.0

    def state(self):
        return {"rate": self.rate}

    def restore(self, state):
        self.rate = state["rate"]


def test_a_rule_of_ones_own_sets_the_rate(points, classifier):
    rule = Falling()
    history = fit(classifier(), points(), epsilon=8, delta=1e-6, epochs=3, learning_rate=rule,
                  batch_size=100, progress=False)  # fmt: skip
    assert [epoch.learning_rate for epoch in history] == [0.25, 0.0625, 0.015625]
    assert rule.told["steps"] == 6
    assert rule.told["bound"] == 1.0
    assert history.replay_rates(Falling()) == [0.25, 0.0625, 0.015625]


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({}, "epsilon and delta must be given"),
        ({"epsilon": 3.0}, "epsilon and delta must be given"),
        ({"gate": (3.0, 1e-6), "epsilon": 3.0}, "epsilon and delta must be given"),
        ({"epsilon": 3, "delta": 1e-6, "learning_rate": math.nan}, "learning_rate must"),
        ({"epsilon": 3, "delta": 1e-6, "learning_rate": 0.1, "optimizer": torch.optim.Adam},
         "learning_rate must be left to the optimizer"),
    ],
)  # fmt: skip
def test_bad_input(points, classifier, how, words):
    with pytest.raises(ValueError, match=words):
        fit(classifier(), points(), epochs=2, progress=False, **how)


def test_a_budget_too_small_for_anything_says_what_it_would_take(points, classifier):
    with pytest.raises(ValueError, match="more signal than noise for 20 records") as refused:
        fit(classifier(), points(count=20), epsilon=0.05, delta=1e-6, **FEW)
    needed = float(str(refused.value).split("It takes epsilon ")[1].split(",")[0])
    assert 0.05 < needed < 1
    history = fit(classifier(), points(count=20), epsilon=1.2 * needed, delta=1e-6, **FEW)
    assert history.epsilon <= 1.2 * needed


@pytest.mark.parametrize("epsilon", [1e-6, 0.0005, 0.002])
def test_so_does_one_that_no_noise_is_enough_for(points, classifier, epsilon):
    """A thousand records: noise of 10,000 is what all of them could add together."""
    with pytest.raises(ValueError, match="more signal than noise for 1000 records") as refused:
        fit(classifier(), points(count=1000), epsilon=epsilon, delta=1e-6, progress=False)
    assert 0.002 < float(str(refused.value).split("It takes epsilon ")[1].split(",")[0]) < 1
    # How many would be enough is not known: it takes more noise than there is.
    assert "or about" not in str(refused.value)


@pytest.mark.parametrize(("count", "said"), [(1, "1 record,"), (20, "20 records,")])
def test_the_records_that_it_would_take_are_enough(points, classifier, count, said):
    how = {"epsilon": 0.05, "delta": 1e-6, **FEW}
    with pytest.warns() if count == 1 else nullcontext():  # of batches of all records
        with pytest.raises(ValueError, match=f"than noise for {said}") as refused:
            fit(classifier(), points(count=count), **how)
    enough = int(str(refused.value).split("or about ")[1].split()[0])
    assert len(fit(classifier(), points(count=enough), **how)) > 0


def test_and_one_whose_steps_no_noise_pays_for_though_records_would_do():
    steps = dict.fromkeys(["epsilon", "delta"], 1e-6) | {"steps": 10**9}
    with pytest.raises(ValueError, match=r"epsilon must pay for 1000000000 steps with") as refused:
        dm.noise_for(**steps)
    needed = float(str(refused.value).split("It takes epsilon ")[1].split(",")[0])
    assert dm.Filter(needed, 1e-6).admits(dm.Gaussian(1e4), 10**9)


@pytest.mark.parametrize("noise", [0.01, 0.3])
def test_a_noise_with_which_not_one_step_fits_says_which_would_do(points, classifier, noise):
    model, how = classifier(), {"epsilon": 3, "delta": 1e-6, "epochs": 3, "batch_size": 40}
    before = [p.detach().clone() for p in model.parameters()]
    with pytest.raises(ValueError, match="noise_multiplier must be enough for one step") as refused:
        fit(model, points(), noise_multiplier=noise, progress=False, **how)
    assert all(map(torch.equal, before, model.parameters()))
    words = str(refused.value)
    assert f"got {noise} at sample rate 0.2; 3 epochs fit from noise_multiplier" in words
    enough = float(words.split("fit from noise_multiplier ")[1].split()[0])
    history = fit(classifier(), points(), noise_multiplier=enough, progress=False, **how)
    assert len(history) == 3
    if noise == 0.3:  # no epsilon is enough for less
        wider = how | {"epsilon": float(words.split("or epsilon ")[1].split()[0])}
        history = fit(classifier(), points(), noise_multiplier=noise, progress=False, **wider)
        assert len(history) == 3


def test_batches_of_all_records_have_no_menu_and_it_is_said_plainly(points, classifier):
    how = {"epsilon": 3, "delta": 1e-6, "epochs": 60, "progress": False}
    for noise in (None, 20.0):
        with pytest.warns(UserWarning, match="batch_size must be below the number") as said:
            fit(classifier(), points(), batch_size=200, noise_multiplier=noise, **how)
        assert str(said[0].message) == (
            "note: the budget has no menu and so lasts less long: batch_size must be below the "
            "number of records for a menu, got all 200 in each batch; with one fewer there is one"
        )
    fit(classifier(), points(), batch_size=199, **how)  # without a warning
    engine, model = PrivateEngine((3.0, 1e-6)), classifier()
    with pytest.warns(UserWarning, match="got all 200 in each batch"):
        engine.make_private(
            model, torch.optim.SGD(model.parameters(), lr=0.1), points(), batch_size=200,
            noise_multiplier=9.0, max_grad_norm=1.0,
        )  # fmt: skip


@pytest.mark.parametrize("noise", [0, -1, math.nan, math.inf])
def test_a_noise_that_is_none_is_refused_before_anything_is_said_of_menus(
    points, classifier, noise
):
    with pytest.raises(ValueError, match="noise_multiplier must"):
        fit(classifier(), points(), epsilon=3, delta=1e-6, noise_multiplier=noise, progress=False)


def test_a_gate_of_ones_own_that_refuses_the_first_step_is_heard(points, classifier):
    gate, model = dm.Filter(3, 1e-6), classifier()
    how = {"epochs": 3, "batch_size": 40, "progress": False}
    with pytest.raises(dm.BudgetExceeded, match="refused"):
        fit(model, points(), gate, noise_multiplier=0.01, **how)
    assert gate.epsilon == 0
    history = fit(classifier(), points(), gate, noise_multiplier=2.0, **how | {"epochs": 1000})
    assert history.ended == "the gate refused the next step"  # after some that it took
    with pytest.raises(dm.BudgetExceeded):
        fit(classifier(), points(), gate, noise_multiplier=2.0, **how)


class Dead(nn.Module):
    """No gradient reaches its weights."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 2)

    def forward(self, x):
        return self.layer(x).clamp(min=1e3)


def test_gradients_that_vanish_are_told(points):
    ends = [
        fit(Dead(), points(), epsilon=3, delta=1e-6, seed=seed, **FEW).ended for seed in range(3)
    ]
    # Of nothing but noise one run in six passes for a weak signal.
    assert sum("but the gradients of 59 steps could not be told from" in end for end in ends) >= 2


@pytest.mark.parametrize(
    ("norm", "advice"),
    [
        (None, "Try inputs scaled to about one,"),
        (1.0, "Try a smaller norm, or none, inputs scaled"),
    ],
)
def test_they_are_told_on_the_screen_with_what_fits(points, capsys, norm, advice):
    how = {"epsilon": 3, "delta": 1e-6, "epochs": Horizon(60), "max_grad_norm": norm}
    for seed in range(3):  # of which one may pass for a weak signal
        history = fit(Dead(), points(), seed=seed, **how)
        said = capsys.readouterr().err
        if "but the gradients" in history.ended:
            break
    assert said == f"note: {history.ended.split(', but ')[1]}\n"
    assert advice in said
    assert ("clipping norm" in said) == (norm is not None)


def test_so_is_an_explosion_but_not_where_no_progress_is_shown(points, classifier, capsys):
    how = {"epsilon": 3, "delta": 1e-6, "learning_rate": AutoRate(reach=1e39), "seed": 1}
    history = fit(classifier(), points(), **how)
    assert capsys.readouterr().err == f"note: {history.ended}\n"
    fit(classifier(), points(), progress=False, **how)
    assert capsys.readouterr().err == ""


def test_parameters_that_explode_end_the_run_with_a_reason(points, classifier):
    history = fit(
        classifier(), points(), epsilon=3, delta=1e-6, learning_rate=AutoRate(reach=1e39),
        progress=False, seed=1,
    )  # fmt: skip
    assert "no longer finite after step" in history.ended
    assert history.steps < 20


def test_a_run_that_can_learn_is_not_called_lost(points, classifier):
    for seed in range(4):
        history = fit(classifier(), points(), epsilon=8, delta=1e-6, seed=seed, **FEW)
        assert history.ended == f"all {len(history)} epochs were done"


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2, 3))]
)
def test_nor_is_one_that_has_learned_quickly(seed):
    """A linear model of 30 columns learns in some steps, and then its gradients show nothing."""
    pytest.importorskip("sklearn")
    task = tasks.load("cancer")
    model = task.model(seed)
    history = fit(model, TensorDataset(task.x, task.y), epsilon=1, delta=1e-6, seed=seed,
                  progress=False)  # fmt: skip
    right = model(task.test_x).argmax(1) == task.test_y
    assert float(right.float().mean()) > 0.9
    assert history.ended == f"all {len(history)} epochs were done"


def test_normalised_sums_are_those_of_one_record_at_a_time():
    torch.manual_seed(0)
    rows = torch.randn(50, 7) * torch.logspace(-6, 6, 50).unsqueeze(1)
    parameter, book = torch.zeros(7), Book(50)
    book.add(parameter, Rows(rows))
    found = book.clipped_sums([parameter], 0.7, clipping=Clipping.NORMALISED)[0]
    true = rows.double()
    true = (0.7 * true / (true.norm(dim=1, keepdim=True) + 0.01)).sum(dim=0)
    assert float((found - true).norm()) < 1e-4


def test_records_are_held_in_pieces_where_memory_is_short():
    data = TensorDataset(torch.zeros(10, 3, 4, 4), torch.zeros(10, dtype=torch.long))
    wide = nn.Sequential(nn.Flatten(), nn.Linear(48, 10_000), nn.ReLU(), nn.Linear(10_000, 2))
    found = records_at_once(wide, data, 1000)
    values = sum(p.numel() for p in wide.parameters())
    assert HELD / (4 * values) / 2 < found < HELD / (4 * values)
    assert records_at_once(nn.Sequential(nn.Flatten(), nn.Linear(48, 2)), data, 1000) is None
    assert records_at_once(nn.BatchNorm1d(3), data, 1000) is None


def test_the_rate_is_reach_over_the_root_of_steps_and_of_noise_and_what_is_released(build, train):
    parts, seen = build(dm.Odometer(delta=1e-6), noise_multiplier=0.5, clipping="normalised"), []
    engine, optimizer = parts.engine, parts.plain
    rule = AutoRate(reach=7.0, momentum=0.5)
    follower = Following(engine, steps=40, rate=rule)
    weights = [p for group in optimizer.param_groups for p in group["params"]]
    batch, values = engine.batch_size, sum(p.numel() for p in weights)
    noise = values * (0.5 / batch) ** 2
    squares = [1 + noise]  # the bound, before any data is seen
    engine.after_step(lambda: squares.append(float(sum(p.grad.square().sum() for p in weights))))
    engine.after_step(lambda: seen.append(optimizer.param_groups[0]["lr"]))
    first = follower.learning_rate
    train(parts, epochs=8)
    energies = [0.75 * noise + 0.25 * sum(squares[:k]) / k for k in range(1, len(squares) + 1)]
    rates = [7 * 0.5 / math.sqrt(40 * energy) for energy in energies]
    assert first == pytest.approx(rates[0])
    assert len(seen) > 20
    assert seen == pytest.approx(rates[1:], rel=1e-3)
    assert list(follower.taken()) == pytest.approx(list(map(math.sqrt, squares[1:])), rel=1e-3)


@pytest.mark.parametrize("bound", [1e-12, 0.1, 1.0, 1e12])
def test_a_rate_knows_no_units_and_has_a_most(bound):
    rules = AutoRate(), AutoRate()
    for rule, unit in zip(rules, (1.0, bound), strict=True):
        rule.begin(steps=50, noise=0.3, bound=unit)
        for length in (0.5, 2.0, 0.1, *[0.0] * 46):
            before = rule.rate
            rule.update(length * unit)
            assert (rule.rate < before) == (length == 2.0)
    assert rules[1].rate == pytest.approx(rules[0].rate / bound)


@pytest.mark.parametrize("noise", [0.0, 1e-9, 0.1])
def test_a_rate_stays_below_its_most_though_nothing_is_released(noise):
    rule = AutoRate()
    rule.begin(steps=400, noise=noise, bound=1.0)
    for _ in range(399):
        rule.update(0.0)
        assert rule.rate <= 2 * 30 * 0.1  # reach times (1 - momentum)


def test_a_rule_goes_on_from_its_state():
    one, other = AutoRate(), AutoRate()
    for rule in (one, other):
        rule.begin(steps=50, noise=0.3, bound=1.0)
    one.update(0.2)
    other.restore(one.state())
    assert other.rate == one.rate
    for rule in (one, other):
        rule.update(0.4)
    assert other.rate == one.rate
    assert math.isnan(AutoRate().rate)


def test_a_state_of_another_rule_is_refused_before_anything_is_charged(
    points, classifier, tmp_path
):
    path = tmp_path / "run.pt"
    how = {"epsilon": 3, "delta": 1e-6, "checkpoint": path}
    fit(classifier(), points(), **how, epochs=2, progress=False)
    for other in ({"rate": 0.1}, {"energy": 1.0, "seen": 9}, {}):
        state = torch.load(path, weights_only=True)
        state["following"]["rate"] = other
        torch.save(state, path)
        gate = dm.Filter(3, 1e-6)
        with pytest.raises(dm.StateError, match=r"go on with that version, or begin again"):
            fit(classifier(), points(), gate, checkpoint=path, noise_multiplier=5.0, epochs=2,
                progress=False)  # fmt: skip
        assert gate.epsilon == 0


@pytest.mark.parametrize("how", [
    {"reach": 0.0}, {"reach": math.nan}, {"reach": math.inf}, {"momentum": 1.0}, {"momentum": -0.1},
    {"momentum": math.nan},
])  # fmt: skip
def test_rules_that_cannot_be(how):
    with pytest.raises(ValueError, match=f"{next(iter(how))} must"):
        AutoRate(**how)


def test_the_model_is_left_with_the_average_of_its_iterates(points, classifier):
    model, seen = classifier(), []

    def look(engine, record):
        seen.append(torch.cat([p.detach().flatten() for p in model.parameters()]))

    fit(model, points(), epsilon=3, delta=1e-6, seed=3, callbacks=[look], **FEW)
    kept = torch.cat([p.detach().flatten() for p in model.parameters()])
    late = torch.stack(seen[-15:]).mean(dim=0)  # of the last half of the steps
    assert not torch.equal(kept, seen[-1])
    assert float((kept - late).norm()) < float((seen[-1] - late).norm())
