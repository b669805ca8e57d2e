"""A real Trainer takes every step that is paid for, shows epsilon, stops, and goes on."""

import json
import math
import os
import pathlib
import subprocess
import sys
import time

import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, IterableDataset, WeightedRandomSampler

import dosimeter as dm
from dosimeter import watching
from dosimeter.decisions import AdaptNoise, Policy, StepSettings, StopEarly
from dosimeter.errors import BudgetExceeded, TicketError
from dosimeter.integrations.lightning import PrivateTraining
from dosimeter.ledger import Ledger
from dosimeter.training import CorrectCount, PrivateEngine
from dosimeter.watching import STOPPED
from service.servers import running

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*is not logged while the module trains"),
    pytest.mark.filterwarnings("ignore:.*callbacks used to create the checkpoint"),
    pytest.mark.filterwarnings("ignore:.*treespec, LeafSpec"),
]


def odometer():
    return dm.Odometer(delta=1e-6)


class TestSteps:
    @pytest.mark.parametrize("physical", [None, 8])
    def test_every_step_that_is_paid_for_is_taken(self, classifier, fit, data, physical):
        """192 of 192; Lightning stops after len(loader) batches."""
        privacy = PrivateTraining(odometer(), noise_multiplier=2.0, batch_size=10,
                                  physical_batch_size=physical)  # fmt: skip
        trainer = fit(classifier, privacy, records=data(480), max_epochs=4)
        engine = privacy.engine
        assert engine.steps == engine.spends == 192
        assert trainer.global_step == 4 * len(engine.made[2])
        assert classifier.validated == 4 + 1  # once an epoch, and once to try it out

    def test_the_model_is_that_of_a_plain_loop(self, classifier, fit, data):
        """Bit by bit, with the same seed: Lightning adds nothing and leaves nothing out."""
        base = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))
        base.load_state_dict(classifier.net.state_dict())
        fit(classifier, PrivateTraining(odometer(), noise_multiplier=1.0, seed=3,
                                        physical_batch_size=7), max_epochs=2)  # fmt: skip
        engine = PrivateEngine(odometer(), seed=3)
        model, optimizer, loader = engine.make_private(
            base, torch.optim.SGD(base.parameters(), lr=0.1, momentum=0.9), data(),
            noise_multiplier=1.0, max_grad_norm=1.0, batch_size=20,
            physical_batch_size=7)  # fmt: skip
        for _ in range(2):
            for x, y in loader:
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
        for one, two in zip(classifier.net.parameters(), base.parameters(), strict=True):
            assert torch.equal(one, two)

    def test_batches_that_were_accumulated_are_one_logical_batch(self, classifier, fit):
        privacy = PrivateTraining(odometer(), noise_multiplier=2.0)
        trainer = fit(classifier, privacy, accumulate_grad_batches=4)
        assert privacy.engine.batch_size == 80
        assert privacy.engine.made[2].physical_batch_size == 20
        assert privacy.engine.steps == 3
        assert trainer.accumulate_grad_batches == 4

    def test_schedules_of_steps_end_where_they_should(self, fit, classifier):
        def configure():
            optimizer = torch.optim.SGD(classifier.parameters(), lr=0.1)
            steps = int(classifier.trainer.estimated_stepping_batches)
            schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=steps)
            return [optimizer], [{"scheduler": schedule, "interval": "step"}]

        classifier.configure_optimizers = configure
        privacy = PrivateTraining(odometer(), noise_multiplier=2.0, physical_batch_size=6)
        fit(classifier, privacy, max_epochs=2)
        assert privacy.engine.steps == 20
        assert privacy.engine.made[1].param_groups[0]["lr"] == pytest.approx(0.0, abs=1e-12)

    def test_a_batch_size_set_on_the_way_changes_the_epochs_after(self, classifier, fit):
        privacy = PrivateTraining(odometer(), noise_multiplier=2.0)
        classifier.on_train_epoch_end = lambda: setattr(privacy.engine, "batch_size", 5)
        fit(classifier, privacy, max_epochs=2)
        assert privacy.engine.steps == privacy.engine.spends == 10 + 40
        assert classifier.validated == 3

    def test_workers_of_the_data_loader_are_used(self, classifier, fit, data):
        privacy = PrivateTraining(odometer(), noise_multiplier=2.0)
        fit(classifier, privacy, loader=DataLoader(data(), batch_size=20, num_workers=1))
        assert privacy.engine.steps == privacy.engine.spends == 10


class TestBudget:
    def test_the_trainer_stops_with_the_budget(self, classifier, fit):
        gate = dm.Filter(epsilon=1.5, delta=1e-6)
        privacy = PrivateTraining(gate, noise_multiplier=1.5, physical_batch_size=8)
        trainer = fit(classifier, privacy, max_epochs=1000)
        engine = privacy.engine
        assert trainer.should_stop
        assert 0 < engine.steps == engine.spends
        assert not gate.admits(engine.step_cost())
        assert gate.epsilon <= 1.5
        # In the middle of an epoch, and looked at once more.
        assert engine.steps % 10
        assert classifier.validated == 1 + math.ceil(engine.steps / 10)

    def test_a_budget_that_is_paid_ahead_is_used_up(self, classifier, fit, data):
        gate = dm.Filter(epsilon=1.5, delta=1e-6)
        privacy = PrivateTraining(gate, noise_multiplier=1.5)
        loader = DataLoader(data(), batch_size=20, num_workers=1)
        trainer = fit(classifier, privacy, loader=loader, max_epochs=1000)
        assert trainer.should_stop
        assert privacy.engine.steps == privacy.engine.spends > 0
        assert not gate.admits(privacy.engine.step_cost())

    def test_epsilon_and_delta_are_enough(self, classifier, fit):
        """The noise is the least that lasts for the epochs of the Trainer."""
        privacy = PrivateTraining((3.0, 1e-5))
        fit(classifier, privacy, max_epochs=3)
        engine = privacy.engine
        assert engine.steps == 30
        assert 2.7 < engine.epsilon <= 3.0
        assert "(3.0, 1e-05)-DP" in str(engine.guarantee())

    def test_a_second_fit_goes_on_with_the_same_budget(self, classifier, fit):
        privacy = PrivateTraining((3.0, 1e-5), noise_multiplier=2.0)
        fit(classifier, privacy)
        gate, before = privacy.gate, privacy.engine.epsilon
        fit(classifier, privacy)
        assert privacy.gate is gate
        assert privacy.engine.epsilon == gate.epsilon > before
        assert privacy.engine.steps == 10

    def test_epsilon_is_shown_and_the_loss_is_not(self, classifier, fit):
        bar = []
        classifier.on_train_batch_end = lambda *_: bar.append(
            set(classifier.trainer.progress_bar_metrics)
        )
        privacy = PrivateTraining(odometer(), noise_multiplier=2.0)
        with pytest.warns(UserWarning, match="'train_loss' is not logged"):
            trainer = fit(classifier, privacy)
        assert set(trainer.callback_metrics) == {"epsilon", "val_accuracy"}
        assert bar[-1] == {"epsilon"}
        shown = float(trainer.callback_metrics["epsilon"])
        assert privacy.engine.epsilon <= shown * (1 + 1e-6) <= privacy.engine.epsilon + 2e-4
        fit(classifier, PrivateTraining(odometer(), noise_multiplier=2.0, released=["train_loss"]))

    def test_a_checkpoint_brings_its_spends(self, classifier, fit, tmp_path):
        saving = ModelCheckpoint(dirpath=tmp_path, save_last=True)
        first = PrivateTraining(odometer(), noise_multiplier=2.0)
        fit(classifier, first, saving, enable_checkpointing=True)
        saved = {name: value.clone() for name, value in classifier.state_dict().items()}

        # Another process, which knows nothing of what was spent.
        torch.manual_seed(9)
        other, gate = type(classifier)(lr=0.0), odometer()
        second = PrivateTraining(gate, noise_multiplier=2.0)
        fit(other, second, max_epochs=3, ckpt_path=tmp_path / "last.ckpt")
        assert second.engine.steps == second.engine.spends == 30
        everything = odometer()
        everything.spend(second.engine.step_cost(), 30)
        assert gate.epsilon == pytest.approx(everything.epsilon, rel=1e-6)
        for name, value in other.state_dict().items():  # momentum came along, and moves it on
            assert value.shape == saved[name].shape
        assert not torch.equal(other.net[0].weight, saved["net.0.weight"])

    def test_a_budget_too_small_for_the_checkpoint_refuses_it(self, classifier, fit, tmp_path):
        saving = ModelCheckpoint(dirpath=tmp_path, save_last=True)
        fit(classifier, PrivateTraining(odometer(), noise_multiplier=1.0), saving,
            enable_checkpointing=True)  # fmt: skip
        small = dm.Filter(epsilon=0.5, delta=1e-6)
        again = PrivateTraining(small, noise_multiplier=1.0)
        with pytest.raises(BudgetExceeded):
            fit(classifier, again, max_epochs=2, ckpt_path=tmp_path / "last.ckpt")
        assert small.epsilon == dm.Filter(epsilon=0.5, delta=1e-6).epsilon
        kept = PrivateTraining(small, noise_multiplier=20.0, spends_kept=True)
        fit(classifier, kept, max_epochs=2, ckpt_path=tmp_path / "last.ckpt")


@pytest.mark.slow
def test_two_ranks_train_one_model_on_one_budget(tmp_path):
    """`Trainer(strategy="ddp", devices=2)`, with physical batches, until the budget ends."""
    script = pathlib.Path(__file__).parent / "ranks.py"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    subprocess.run([sys.executable, str(script), str(tmp_path)], env=environment, check=True,
                   capture_output=True, timeout=300)  # fmt: skip
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    assert first["steps"] == second["steps"] == first["spends"] == second["spends"] > 0
    assert first["paid"] == first["spends"]
    assert second["paid"] == 0  # rank 0 pays for both
    assert first["parameters"] == second["parameters"]
    assert first["batch_size"] == 40
    assert first["stopped"] is second["stopped"] is True
    # Each rank draws from its own half.
    assert {record % 2 for record in first["seen"]} == {0}
    assert {record % 2 for record in second["seen"]} == {1}


class TestOthersObjects:
    def test_all_is_as_it_was_after_a_fit(self, classifier, fit):
        before = dict(vars(classifier)), dict(vars(classifier.net))
        trainer = fit(classifier, PrivateTraining(odometer(), noise_multiplier=2.0))
        assert set(vars(classifier)) - {"_hparams"} == set(before[0])
        assert set(vars(classifier.net)) == set(before[1])
        assert type(trainer.fit_loop._data_source).__module__.startswith("lightning")

    def test_and_after_one_that_failed(self, classifier, fit):
        def broken(batch, batch_idx):
            raise RuntimeError("out of memory")

        classifier.training_step = broken
        with pytest.raises(RuntimeError, match="out of memory"):
            fit(classifier, PrivateTraining(odometer(), noise_multiplier=2.0))
        assert "forward" not in vars(classifier.net)
        assert "log" not in vars(classifier)

    def test_the_whole_module_is_trained_where_it_has_several_parts(self, classifier, fit):
        classifier.head = nn.Linear(2, 2)
        classifier.forward = lambda x: classifier.head(classifier.net(x))
        privacy = PrivateTraining(odometer(), noise_multiplier=2.0)
        fit(classifier, privacy)
        assert privacy.engine.steps == 10
        assert "forward" in vars(classifier)  # the one of this test

    def test_a_part_can_be_named_and_the_rest_frozen(self, classifier, fit):
        classifier.head = nn.Linear(2, 2).requires_grad_(False)
        classifier.forward = lambda x: classifier.head(classifier.net(x))
        classifier.configure_optimizers = lambda: torch.optim.SGD(classifier.net.parameters(), 0.1)
        privacy = PrivateTraining(odometer(), noise_multiplier=2.0, network="net")
        fit(classifier, privacy)
        assert privacy.engine.steps == 10


class Halving(Policy):
    """Halves the noise and the batch size after every epoch."""

    def __init__(self):
        super().__init__(every=1)
        self._seen = []

    def update(self, engine, reading):
        self._seen.append(reading.value)
        engine.noise_multiplier /= 2
        engine.batch_size //= 2


class TestPolicies:
    def test_noise_and_batch_size_follow_a_policy(self, classifier, fit):
        gate, policy, signal = odometer(), Halving(), CorrectCount(noise_multiplier=20.0)
        fit(classifier, PrivateTraining(gate, noise_multiplier=4.0, policy=policy, signal=signal),
            max_epochs=3)  # fmt: skip
        assert len(policy._seen) == 3
        plain = odometer()
        for noise, batch in [(4.0, 20), (2.0, 10), (1.0, 5)]:
            plain.spend(StepSettings(noise, batch, 200).cost, 200 // batch)
            plain.spend(signal.cost)
        assert gate.epsilon == pytest.approx(plain.epsilon, rel=1e-6)

    def test_a_policy_ends_the_fit(self, classifier, fit, data):
        privacy = PrivateTraining(
            odometer(), noise_multiplier=2.0, policy=StopEarly(target=0.01, every=2),
            signal=CorrectCount(public=True), public=data(50, 1))  # fmt: skip
        trainer = fit(classifier, privacy, max_epochs=9)
        assert trainer.should_stop
        assert privacy.engine.steps == privacy.engine.spends == 20

    def test_a_policy_that_does_not_say_what_it_will_ask_for_has_no_menu(self, classifier, fit):
        privacy = PrivateTraining(
            (3.0, 1e-5), noise_multiplier=8.0, policy=Halving(), signal=CorrectCount())  # fmt: skip
        with pytest.warns(UserWarning, match="no menu"):
            fit(classifier, privacy, max_epochs=2)
        assert privacy.engine.spends == 10 + 20 + 2
        assert privacy.engine.epsilon <= 3.0

    @pytest.mark.slow
    def test_epsilon_and_delta_are_priced_for_the_policy_too(self, classifier, fit):
        policy, signal = AdaptNoise(step=0.2, every=1, horizon=2), CorrectCount()
        privacy = PrivateTraining((3.0, 1e-5), policy=policy, signal=signal)
        fit(classifier, privacy, max_epochs=2)
        engine = privacy.engine
        assert engine.spends > engine.steps > 0
        assert engine.epsilon <= 3.0

    def test_a_reading_that_is_refused_ends_the_fit(self, classifier, fit):
        gate = dm.Filter(epsilon=1.5, delta=1e-6)
        signal = CorrectCount(noise_multiplier=0.5)
        privacy = PrivateTraining(gate, noise_multiplier=4.0, policy=Halving(), signal=signal)
        trainer = fit(classifier, privacy, max_epochs=9)
        assert trainer.should_stop
        assert privacy.engine.stopped == "the gate refused the next reading"
        assert privacy.engine.steps == privacy.engine.spends == 10

    def test_a_checkpoint_brings_what_the_policy_did(self, classifier, fit, tmp_path):
        signal = CorrectCount(noise_multiplier=20.0)
        saving = ModelCheckpoint(dirpath=tmp_path, save_last=True, save_on_train_epoch_end=True)
        first = PrivateTraining(odometer(), noise_multiplier=4.0, policy=Halving(), signal=signal)
        fit(classifier, first, saving, enable_checkpointing=True, max_epochs=1)
        policy, gate = Halving(), odometer()
        second = PrivateTraining(gate, noise_multiplier=4.0, policy=policy, signal=signal)
        fit(classifier, second, max_epochs=2, ckpt_path=tmp_path / "last.ckpt")
        assert second.engine.noise_multiplier == 1.0  # halved before the checkpoint and after it
        assert len(policy._seen) == 2
        assert second.engine.steps == 10 + 20
        assert second.engine.spends == 10 + 1 + 20 + 1

    def test_policies_without_a_signal_are_refused(self):
        with pytest.raises(ValueError, match="signal must be given"):
            PrivateTraining(odometer(), noise_multiplier=2.0, policy=Halving())


class TestRefusals:
    def refused(self, fit, classifier, words, error=ValueError, gate=None, **options):
        gate = odometer() if gate is None else gate
        privacy = PrivateTraining(gate, noise_multiplier=options.pop("noise_multiplier", 2.0))
        before = [p.clone() for p in classifier.parameters()]
        with pytest.raises(error, match=words):
            fit(classifier, privacy, **options)
        assert gate.epsilon == odometer().epsilon
        for one, two in zip(before, classifier.parameters(), strict=True):
            assert torch.equal(one, two)

    def test_other_ways_to_touch_gradients(self, fit, classifier):
        self.refused(fit, classifier, "max_grad_norm", gradient_clip_val=1.0)
        self.refused(fit, classifier, "precision must be", precision="bf16-true")
        classifier.automatic_optimization = False
        self.refused(fit, classifier, "automatic_optimization")

    def test_data_that_cannot_be_drawn_record_by_record(self, fit, classifier, data):
        class Stream(IterableDataset):
            def __iter__(self):
                return iter(())

        weights = WeightedRandomSampler(torch.rand(200), 200)
        loader = DataLoader(data(), batch_size=20, sampler=weights)
        self.refused(fit, classifier, "WeightedRandomSampler", loader=loader)
        self.refused(fit, classifier, "map-style", loader=DataLoader(Stream(), batch_size=20))
        self.refused(fit, classifier, "one DataLoader", TypeError, loader=[1, 2])

    def test_noise_that_nobody_chose(self, fit, classifier):
        self.refused(fit, classifier, "noise_multiplier must be given", noise_multiplier=None)

    def test_processes_that_take_the_budget_with_them(self, fit, classifier):
        self.refused(fit, classifier, "second budget", TypeError, strategy="ddp_spawn", devices=1)
        self.refused(
            fit, classifier, "spawned processes", Exception, strategy="ddp_fork", devices=1
        )

    def test_a_loss_in_which_records_touch_each_other(self, fit, classifier):
        def step(batch, batch_idx):
            out = classifier(batch[0])
            return (out - out.mean(0)).square().mean()

        classifier.training_step = step
        gate = odometer()
        with pytest.raises(TicketError, match="depend on the other records"):
            fit(classifier, PrivateTraining(gate, noise_multiplier=2.0))

    def test_a_step_that_goes_round_the_network(self, fit, classifier):
        classifier.head = nn.Linear(2, 2)

        def step(batch, batch_idx):
            return F.cross_entropy(classifier.head(classifier.net(batch[0])), batch[1])

        classifier.training_step = step
        with pytest.raises(TicketError):
            fit(classifier, PrivateTraining(odometer(), noise_multiplier=2.0))


class TestWatched:
    def test_a_page_is_told_how_the_fit_goes(self, classifier, fit, run_page):
        gate = dm.Filter(epsilon=8, delta=1e-5)
        privacy = PrivateTraining(gate, noise_multiplier=2.0, watch=run_page.url)
        fit(classifier, privacy, max_epochs=2)
        told = run_page.last
        assert (told["name"], told["state"], told["ended"]) == (
            "Classifier",
            "ended",
            "it was done",
        )
        assert (told["epochs"], told["limit"]) == (2, 8.0)
        assert [row["epoch"] for row in told["history"]] == [1, 2]
        assert told["history"][-1]["epsilon"] == gate.epsilon
        assert told["history"][-1]["spent_share"] == gate.spent_share
        assert [row["noise_multiplier"] for row in told["history"]] == [2.0, 2.0]

    def test_its_button_ends_the_fit_at_the_next_step(self, classifier, fit, run_page, monkeypatch):
        monkeypatch.setattr(watching, "_EVERY", 0.001)
        privacy = PrivateTraining(odometer(), noise_multiplier=2.0, watch=run_page.url)

        def press():
            run_page.stop = True

        classifier.on_train_epoch_end = press
        trainer = fit(classifier, privacy, max_epochs=300)
        assert trainer.current_epoch < 300
        assert privacy.engine.stopped == STOPPED
        assert privacy.engine.steps == privacy.engine.spends
        told = run_page.last
        assert (told["state"], told["ended"]) == ("ended", STOPPED)
        assert told["history"][-1]["epsilon"] == privacy.engine.epsilon

    def test_an_epoch_is_told_of_when_checkpoints_have_it(
        self, classifier, fit, run_page, tmp_path, monkeypatch
    ):
        """What policies made of a reading must not be seen if the run can forget that it paid."""
        monkeypatch.setattr(watching, "_EVERY", 0.001)
        seen = []
        privacy = PrivateTraining(odometer(), noise_multiplier=2.0, watch=run_page.url)
        saving = ModelCheckpoint(tmp_path, save_on_train_epoch_end=True)
        save = saving.on_train_epoch_end

        def saved(*args):
            time.sleep(0.05)  # long enough for a page to be told
            seen.append(len(run_page.last["history"]))
            save(*args)

        saving.on_train_epoch_end = saved
        fit(classifier, privacy, saving, max_epochs=3, enable_checkpointing=True)
        assert seen[0] == 0
        assert all(told <= number for number, told in enumerate(seen))

    def test_a_budget_that_ends_is_said(self, classifier, fit, run_page):
        privacy = PrivateTraining(dm.Filter(epsilon=1, delta=1e-5), noise_multiplier=2.0,
                                  watch=run_page.url)  # fmt: skip
        fit(classifier, privacy, max_epochs=1000)
        assert run_page.last["ended"] == "the gate refused the next step"

    def test_a_fit_that_fails_is_not_said_to_be_done(self, classifier, fit, run_page):
        def broken():
            raise RuntimeError("broken")

        classifier.on_train_epoch_end = broken
        ended = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(watching.Watch, "end", lambda _, *how: ended.append(how))
            with pytest.raises(RuntimeError, match="broken"):
                fit(
                    classifier,
                    PrivateTraining(odometer(), noise_multiplier=2.0, watch=run_page.url),
                )
        assert ended == [("failed", "RuntimeError")]

    def test_an_address_that_is_none_is_said_before_anything_is_spent(self, classifier, fit):
        gate = odometer()
        with pytest.raises(ValueError, match="watch must be the URL of a budget service"):
            fit(classifier, PrivateTraining(gate, noise_multiplier=2.0, watch="nowhere"))
        assert gate.epsilon == 0

    def test_a_service_shows_it(self, classifier, fit, tmp_path, monkeypatch):
        url = f"sqlite:///{tmp_path}/budgets.db"
        with running(url) as service:
            monkeypatch.setenv("DOSIMETER_TOKEN", service.token("owner:*"))
            with Ledger.open(service.address) as ledger:
                gate = ledger.create("patients", 8.0, 1e-5)
                privacy = PrivateTraining(gate, noise_multiplier=2.0, watch=service.address)
                fit(classifier, privacy, max_epochs=2)
            caller = service.office.tokens.caller(os.environ["DOSIMETER_TOKEN"])
            (run,) = service.office.runs.listed(caller)
            assert (run.budget, run.status["state"]) == ("patients", "ended")
            assert len(run.status["history"]) == 2
