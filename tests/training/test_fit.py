"""fit trains, records, obeys policies, and its history can be saved, plotted and replayed."""

import dataclasses
import json
import re

import pytest
import torch
from torch.utils.data import TensorDataset

import dosimeter as dm
from dosimeter.training import (
    AdaptBatch,
    AdaptNoise,
    AutoRate,
    AveragedIterate,
    CorrectCount,
    Following,
    History,
    LowerNoise,
    Policy,
    PrivateEngine,
    SignRule,
    StopEarly,
    Trainer,
    fit,
    scalars_to,
)


@pytest.fixture
def run(points, classifier):
    def start(gate=None, **options):
        gate = dm.Filter(epsilon=8, delta=1e-6) if gate is None else gate
        settings = {
            "epochs": 4,
            "noise_multiplier": 2.0,
            "batch_size": 40,
            "public": points(seed=1),
            "progress": False,
            "seed": 3,
            **options,
        }
        dataset = settings.pop("dataset", points())
        return fit(classifier(), dataset, gate, **settings)

    return start


@pytest.fixture
def pieces(points, classifier):
    """A trainer put together by hand."""

    def make(gate=None, *, seed=3, **options):
        engine = PrivateEngine(dm.Filter(8, 1e-6) if gate is None else gate, seed=seed)
        model = classifier()
        plain = torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.9)
        how = {"noise_multiplier": 2.0, "max_grad_norm": 1.0, "batch_size": 40}
        engine.make_private(model, plain, points(), clipping="normalised", **how)
        average = AveragedIterate(engine, model, decay=1 - 12 / 20)
        following = Following(engine, steps=20, rate=AutoRate())
        return Trainer(
            engine, public=points(seed=1), average=average, following=following, **options
        )

    return make


def test_the_pieces_do_what_the_whole_does(run, pieces):
    """By epochs of the trainer, and by steps of a loop of one's own."""
    rules = {"policy": AdaptNoise(every=1, horizon=1), "signal": CorrectCount(public=True)}
    whole = run(**rules)
    trainer = pieces(policy=AdaptNoise(every=1, horizon=1), signal=CorrectCount(public=True))
    assert [epoch.epoch for epoch in trainer.epochs(4)] == [1, 2, 3, 4]
    own = pieces(policy=AdaptNoise(every=1, horizon=1), signal=CorrectCount(public=True))
    model, optimizer, loader = own.engine.made
    loss = own.engine.private_loss(torch.nn.CrossEntropyLoss())
    for _ in range(4):
        for x, y in loader:
            optimizer.zero_grad()
            loss(model(x), y).backward()
            optimizer.step()
        assert own.close_epoch() is own.history[-1]
    assert own.close_epoch() is None
    assert len({epoch.noise_multiplier for epoch in whole}) > 1
    for history in (trainer.history, own.history):
        for one, other in zip(history, whole, strict=True):
            assert dataclasses.replace(one, seconds=0) == dataclasses.replace(other, seconds=0)
    assert (trainer.history.ended, trainer.history.guarantee) == (whole.ended, whole.guarantee)


@pytest.mark.parametrize("start", ["fit", "engine"])
def test_epsilon_and_delta_make_a_filter_with_a_menu(run, pieces, start):
    step = dm.SampledGaussian(40 / 200, 2.0)
    if start == "fit":
        seen = []
        history = run((3.0, 1e-6), epochs=1000, callbacks=[lambda e, _: seen.append(e.gate)])
        gate = seen[0]
    else:
        trainer = pieces((3.0, 1e-6))
        gate, history = trainer.engine.gate, trainer.history
        assert len(list(trainer.epochs(1000))) == len(history)
    assert [item.cost for item in gate.menu.items] == [step]
    assert history.ended == "the gate refused the next step"
    assert history.steps > 1.15 * dm.Filter(3.0, 1e-6).affordable(step)
    assert "(3.0, 1e-06)-DP" in history.guarantee
    assert "a menu of costs that was fixed before the first spend" in history.guarantee


def test_what_was_spent_before_there_was_a_menu_stays_spent(points, classifier):
    engine, model = PrivateEngine((3.0, 1e-6)), classifier()
    engine.spend(dm.Gaussian(50.0))
    before = engine.epsilon
    plain = torch.optim.SGD(model.parameters(), lr=0.5)
    engine.make_private(
        model, plain, points(), noise_multiplier=2.0, max_grad_norm=1.0, batch_size=40
    )
    assert engine.gate.menu is None
    assert engine.epsilon == before > 0


def test_a_run_with_a_menu_goes_on_from_its_checkpoint(run, tmp_path):
    gates = []
    for epochs in (2, 4):
        history = run((8.0, 1e-6), epochs=epochs, checkpoint=tmp_path / "run.pt",
                      callbacks=[lambda engine, _: gates.append(engine.gate)])  # fmt: skip
    whole = dm.Filter(8.0, 1e-6, menu=[dm.SampledGaussian(40 / 200, 2.0)])
    whole.spend(dm.SampledGaussian(40 / 200, 2.0), 20)
    assert (history.steps, gates[-1].quanta_left) == (20, whole.quanta_left)
    assert history.epsilon == pytest.approx(whole.epsilon, rel=1e-9)


def test_a_policy_that_does_not_say_what_it_asks_for_gets_no_menu(run):
    class Own(StopEarly):
        def costs(self, engine):
            return Policy.costs(self, engine)

    seen = []
    with pytest.warns(UserWarning, match="has no menu and so lasts less long: policy must say"):
        run((8.0, 1e-6), policy=Own(patience=9), signal=CorrectCount(),
            callbacks=[lambda engine, _: seen.append(engine.gate)])  # fmt: skip
    assert seen[0].menu is None


def test_a_plain_run(run):
    gate = dm.Filter(epsilon=8, delta=1e-6)
    history = run(gate)
    assert len(history) == 4
    assert history.steps == 20
    assert history.epsilon == gate.epsilon
    assert history.accuracy > 0.5
    assert history.ended == "all 4 epochs were done"
    assert "(8.0, 1e-06)-DP" in history.guarantee
    assert all(record.seconds > 0 and record.loss > 0 for record in history)


def test_without_public_data_nothing_about_the_data_is_shown(run):
    history = run(public=None)
    assert all(record.accuracy is None and record.loss is None for record in history)
    assert history.accuracy is None


def test_the_gate_ends_it(run):
    history = run(dm.Filter(epsilon=3, delta=1e-6), epochs=1000)
    assert history.ended == "the gate refused the next step"
    assert history.epsilon <= 3
    assert all(record.steps > 0 for record in history)


def test_epsilon_equals_that_of_the_recorded_schedule(run):
    gate = dm.Odometer(delta=1e-6)
    history = run(
        gate, policy=[AdaptNoise(every=1), AdaptBatch(step=10, minimum=10, every=2)],
        signal=CorrectCount(noise_multiplier=20), epochs=6)  # fmt: skip
    core = dm.Odometer(delta=1e-6)
    for record in history:
        for _ in range(record.steps):
            core.spend(dm.SampledGaussian(record.batch_size / 200, record.noise_multiplier))
        if record.signal:
            core.spend(dm.Gaussian(record.signal.noise_multiplier))
    assert history.epsilon == core.epsilon
    assert len({record.noise_multiplier for record in history}) > 1


@pytest.mark.parametrize(
    "make",
    [
        lambda: [AdaptNoise(every=1, horizon=3)],
        lambda: [AdaptBatch(step=10, minimum=10, every=2, horizon=3)],
        lambda: [LowerNoise(start=4.0, minimum=3.0, step=0.5)],
        lambda: [AdaptNoise(every=1, horizon=3), StopEarly(patience=3, every=2)],
    ],
)
def test_a_run_can_be_replayed_from_its_saved_history(run, make, tmp_path):
    history = run(
        dm.Filter(epsilon=8, delta=1e-6),
        policy=make(),
        signal=CorrectCount(noise_multiplier=20),
        epochs=10,
    )
    history.save(tmp_path / "history.json")
    again = History.load(tmp_path / "history.json")
    assert again == history
    chosen = again.replay(make(), dm.Filter(epsilon=8, delta=1e-6))
    assert len(chosen) == len(history)
    for before, after in zip(chosen, history.epochs[1:], strict=False):
        assert before[:2] == (after.noise_multiplier, after.batch_size)
        assert before[2] is None


def test_stop_early_on_a_public_signal(run):
    history = run(policy=StopEarly(target=0.6), signal=CorrectCount(public=True), epochs=50)
    assert history.ended == "correct count reached its target 0.6"
    assert history.accuracy >= 0.6
    assert len(history) < 50


def test_a_refused_reading_ends_the_run(run):
    gate = dm.Filter(epsilon=8, delta=1e-6)
    history = run(gate, policy=StopEarly(target=1.1), signal=CorrectCount(noise_multiplier=0.01))
    assert history.ended == "the gate refused the next reading"
    assert len(history) == 1


def test_policies_need_a_signal(run):
    with pytest.raises(ValueError, match="signal must"):
        run(policy=AdaptNoise())
    with pytest.raises(ValueError, match="public must"):
        run(policy=AdaptNoise(), signal=CorrectCount(public=True), public=None)


def test_missing_labels(run):
    with pytest.raises(ValueError, match="pairs"):
        run(dataset=TensorDataset(torch.randn(200, 6)))


def test_callbacks_and_scalars(run):
    seen, scalars = [], []

    class Writer:
        def add_scalar(self, tag, value, step):
            scalars.append((tag, value, step))

    history = run(callbacks=[lambda _, record: seen.append(record), scalars_to(Writer())],
                  policy=AdaptNoise(every=2), signal=CorrectCount())  # fmt: skip
    assert seen == history.epochs
    assert ("privacy/epsilon", history[0].epsilon, 5) in scalars
    assert {tag for tag, _, _ in scalars} == {
        "privacy/epsilon", "privacy/noise_multiplier", "privacy/batch_size",
        "public/accuracy", "public/loss", "signal"}  # fmt: skip


def test_the_progress_line(run, capsys):
    run(progress=True)
    out = capsys.readouterr().out
    assert "training" in out
    assert "/8 noise 2 batch 40" in out


def test_the_line_of_a_run_that_ends_early_is_not_full(run, capsys):
    run(progress=True, epochs=200, policy=StopEarly(target=0.01), signal=CorrectCount())
    out = capsys.readouterr().out
    assert re.search(r"\b\d/200 stopped, loss", out)
    run(progress=True, epochs=2)
    out = capsys.readouterr().out
    assert "2/2 loss" in out
    assert "stopped" not in out


def test_ctrl_c_says_what_is_kept_and_the_next_start_that_it_goes_on(run, tmp_path, capsys):
    path = tmp_path / "run.pt"

    def press(_, record):
        if record.epoch == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as pressed:
        run(checkpoint=path, callbacks=[press])
    assert f"{path} holds the run up to epoch 2" in pressed.value.__notes__[0]
    capsys.readouterr()
    run(checkpoint=path, progress=True)
    said = capsys.readouterr().err
    assert said == f"note: going on from {path}, which holds 2 of 4 epochs\n"
    with pytest.raises(KeyboardInterrupt) as pressed:
        run(callbacks=[press])
    assert not hasattr(pressed.value, "__notes__")


def test_a_run_goes_on_from_its_checkpoint(run, tmp_path):
    """Stopped after 3 of 6 epochs by an exception, it ends as one that was not."""
    path = tmp_path / "run.pt"
    options = {"signal": CorrectCount(public=True), "epochs": 6}

    def interrupt(engine, record):
        if record.epoch == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(checkpoint=path, callbacks=[interrupt], policy=AdaptNoise(every=2), **options)
    gate = dm.Filter(epsilon=8, delta=1e-6)
    resumed = run(gate, checkpoint=path, policy=AdaptNoise(every=2), **options)
    whole = run(policy=AdaptNoise(every=2), **options)
    assert [record.epoch for record in resumed] == [1, 2, 3, 4, 5, 6]
    for one, other in zip(resumed, whole, strict=True):
        assert one.noise_multiplier == other.noise_multiplier
        assert one.accuracy == other.accuracy
        assert one.epsilon == pytest.approx(other.epsilon, rel=1e-9)
    again = run(checkpoint=path, policy=AdaptNoise(every=2), **options)
    assert again.epochs == resumed.epochs


def test_a_run_can_be_stopped_from_outside_between_two_steps(run, pieces, tmp_path):
    def stop_after_two_steps(engine):
        assert (engine.stopped, engine.steps) == (None, 0)
        engine.after_step(lambda: engine.steps == 2 and engine.stop("someone asked"))

    gate = dm.Filter(epsilon=8, delta=1e-6)
    trainer = pieces(gate)
    stop_after_two_steps(trainer.engine)
    _ = list(trainer.epochs(4, lambda _: trainer.save(tmp_path / "run.pt")))
    history = trainer.history
    assert (len(history), history.steps, history.ended) == (1, 2, "someone asked")
    assert history.epsilon == gate.epsilon
    resumed = run(checkpoint=tmp_path / "run.pt")
    assert [epoch.steps for epoch in resumed] == [2, 5, 5, 5]


def test_a_rule_that_ended_the_run_is_not_forgotten(run, tmp_path):
    """The process dies after the checkpoint and before anyone heard of the end."""
    rule = {"policy": StopEarly(target=0.0), "signal": CorrectCount(public=True)}

    def die(engine, record):
        # Saved before anyone hears of it: what was released must stay charged.
        saved = torch.load(tmp_path / "run.pt", weights_only=True)
        assert len(saved["history"]["epochs"]) == record.epoch
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(checkpoint=tmp_path / "run.pt", callbacks=[die], **rule)
    gate = dm.Filter(epsilon=8, delta=1e-6)
    resumed = run(gate, checkpoint=tmp_path / "run.pt", **rule)
    assert (len(resumed), resumed.ended) == (1, "correct count reached its target 0")
    assert gate.epsilon == pytest.approx(resumed[0].epsilon, rel=1e-9)


def test_a_run_that_was_seeded_once_stays_seeded(pieces, tmp_path):
    for seed in (3, None, None):
        trainer = pieces(seed=seed)
        trainer.resume(tmp_path / "run.pt")
        engine = trainer.engine
        engine.after_step(lambda engine=engine: engine.stop("someone asked"))
        _ = list(trainer.epochs(4, lambda _, trainer=trainer: trainer.save(tmp_path / "run.pt")))
        assert "a seed was given" in trainer.history.guarantee


def test_a_strange_file_is_refused(tmp_path):
    path = tmp_path / "history.json"
    for content in ({}, {"version": 9}, {"version": 1, "epochs": [{"epoch": 1}]}):
        path.write_text(json.dumps(content))
        with pytest.raises(dm.StateError):
            History.load(path)


def test_averaged_iterate(build, train):
    parts = build()
    average = AveragedIterate(parts.engine, parts.base, decay=1.0)
    seen = []
    parts.engine.after_step(lambda: seen.append(parts.base[0].weight.detach().clone()))
    train(parts, epochs=2)
    last = parts.base[0].weight.detach().clone()
    with average.applied():
        torch.testing.assert_close(parts.base[0].weight.detach(), torch.stack(seen).mean(dim=0))
    assert torch.equal(parts.base[0].weight.detach(), last)


def test_sign_rule_raises_a_rate_that_is_too_small_and_lowers_one_too_large(build, train):
    factors = {}
    for lr in (1e-4, 300.0):
        parts = build(dm.Odometer(delta=1e-6), lr=lr, noise_multiplier=0.05)
        rule = SignRule(parts.engine, parts.optimizer)
        train(parts, epochs=8)
        factors[lr] = rule.factor
        assert parts.plain.param_groups[0]["lr"] == pytest.approx(lr * rule.factor)
    assert factors[1e-4] > 2
    assert factors[300.0] < 1


@pytest.mark.slow
def test_sign_rule_mends_a_rate_ten_times_too_small():
    """On digits it gains about 13 points; 3 are asked for, over the mean of three runs each."""
    sklearn_datasets = pytest.importorskip("sklearn.datasets")
    bunch = sklearn_datasets.load_digits()
    x = torch.tensor(bunch.data, dtype=torch.float32) / 16
    y = torch.tensor(bunch.target)
    private, public = TensorDataset(x[:1437], y[:1437]), TensorDataset(x[1437:], y[1437:])

    def accuracy(*, mended):
        model = torch.nn.Sequential(
            torch.nn.Linear(64, 32), torch.nn.Tanh(), torch.nn.Linear(32, 10)
        )
        plain = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        engine = PrivateEngine(dm.Filter(epsilon=4, delta=1e-5))
        wrapped, optimizer, loader = engine.make_private(
            model, plain, private, noise_multiplier=3.0, max_grad_norm=1.0, batch_size=256
        )
        if mended:
            SignRule(engine, optimizer)
        while not engine.exhausted:
            for inputs, labels in loader:
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(wrapped(inputs), labels).backward()
                optimizer.step()
        return CorrectCount(public=True).read(model, public).quality

    mended = sum(accuracy(mended=True) for _ in range(3)) / 3
    plain = sum(accuracy(mended=False) for _ in range(3)) / 3
    assert mended > plain + 0.03
