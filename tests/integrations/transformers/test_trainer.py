"""A real Trainer takes every step that is paid for, tells no loss, stops, and goes on."""

import json
import math
import os
import pathlib
import subprocess
import sys

import pytest
import torch
from transformers import Trainer, TrainerCallback

import dosimeter as dm
from dosimeter import watching
from dosimeter.decisions import Policy, StopEarly
from dosimeter.errors import BudgetExceeded, StateError
from dosimeter.integrations.transformers import PrivateTrainer
from dosimeter.training import CorrectCount, PrivateEngine
from dosimeter.watching import STOPPED

pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*pin_memory"),
]
KINDS = ["bert", "bert with LoRA", "llama", "llama with LoRA"]


def odometer():
    return dm.Odometer(delta=1e-6)


class TestSteps:
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("physical", [None, 7])
    def test_every_step_that_is_paid_for_is_taken(
        self, model, sentences, arguments, kind, physical
    ):
        """Full fine-tuning and LoRA, of a model that classifies and one that writes."""
        trained = model(kind)
        before = {name: p.clone() for name, p in trained.named_parameters()}
        trainer = PrivateTrainer(
            odometer(), trained, arguments(num_train_epochs=2), noise_multiplier=1.0,
            physical_batch_size=physical,
            train_dataset=sentences(tokens="llama" in kind))  # fmt: skip
        out = trainer.train()
        engine = trainer.engine
        assert engine.steps == engine.spends == 12
        assert out.global_step == 2 * len(trainer.get_train_dataloader())
        changed = {n for n, p in trained.named_parameters() if not torch.equal(p, before[n])}
        assert changed == {n for n, p in trained.named_parameters() if p.requires_grad}

    def test_48_of_48_in_physical_batches(self, model, sentences, arguments):
        trainer = PrivateTrainer(
            odometer(), model("bert with LoRA"),
            arguments(per_device_train_batch_size=5, num_train_epochs=2), noise_multiplier=1.0,
            physical_batch_size=2, train_dataset=sentences())  # fmt: skip
        trainer.train()
        assert trainer.engine.steps == trainer.engine.spends == 48

    @pytest.mark.parametrize("size", [1, 12, 30])
    def test_no_batch_size_is_taken_for_the_length_of_a_text(
        self, model, sentences, arguments, size
    ):
        """Twelve tokens, and batches of one, of twelve and of more: positions belong to none."""
        trainer = PrivateTrainer(
            odometer(), model("bert"), arguments(per_device_train_batch_size=30),
            noise_multiplier=1.0, physical_batch_size=size, train_dataset=sentences())  # fmt: skip
        trainer.train()
        assert trainer.engine.steps == 4

    def test_batches_that_are_accumulated_are_one_logical_batch(self, model, sentences, arguments):
        settings = arguments(per_device_train_batch_size=10, gradient_accumulation_steps=3)
        trainer = PrivateTrainer(odometer(), model("bert"), settings, noise_multiplier=1.0,
                                 train_dataset=sentences())  # fmt: skip
        trainer.train()
        assert trainer.engine.batch_size == 30
        assert trainer.engine.made[2].physical_batch_size == 10
        assert trainer.engine.steps == 4
        assert settings.gradient_accumulation_steps == 3

    @pytest.mark.parametrize("kind", ["bert", "llama"])
    def test_the_model_is_that_of_a_plain_loop(self, model, sentences, arguments, kind):
        """To rounding, with the same seed; the loss of each record is the model's own for it."""
        data, trained, other = sentences(tokens=kind == "llama"), model(kind), model(kind)
        settings = arguments(optim="sgd", lr_scheduler_type="constant", learning_rate=0.1)
        trainer = PrivateTrainer(odometer(), trained, settings, noise_multiplier=0.5, seed=3,
                                 train_dataset=data)  # fmt: skip
        trainer.train()
        clipped = PrivateEngine(odometer(), seed=3)
        _, optimizer, loader = clipped.make_private(
            other, torch.optim.SGD(other.parameters(), lr=0.1), data, noise_multiplier=0.5,
            max_grad_norm=1.0, batch_size=20)  # fmt: skip
        for batch in loader:
            self.step_by_hand(other, optimizer, batch)
        for (name, one), two in zip(trained.named_parameters(), other.parameters(), strict=True):
            assert torch.allclose(one, two, atol=2e-5), name

    def step_by_hand(self, model, optimizer, batch):
        """The clipped sum, from the model's own loss on one record at a time."""
        parameters = list(model.parameters())
        norm = optimizer._clipper.norm
        sums = [torch.zeros_like(p) for p in parameters]
        for row in range(len(batch["input_ids"])):
            one = {name: value[row : row + 1] for name, value in batch.items()}
            grads = torch.autograd.grad(model(**one).loss, parameters)
            length = torch.sqrt(sum(g.double().square().sum() for g in grads))
            factor = min(1.0, norm / float(length))
            for total, grad in zip(sums, grads, strict=True):
                total += factor * grad
        optimizer._clipper.sums = lambda size: [each.double() for each in sums]
        optimizer.step()

    def test_workers_read_ahead(self, model, sentences, arguments):
        settings = arguments(dataloader_num_workers=1)
        trainer = PrivateTrainer(odometer(), model("bert"), settings, noise_multiplier=1.0,
                                 train_dataset=sentences())  # fmt: skip
        trainer.train()
        assert trainer.engine.steps == trainer.engine.spends == 6


class TestBudget:
    def test_a_small_task_is_learned_under_a_filter(self, model, sentences, arguments):
        trainer = PrivateTrainer(
            (6.0, 1e-4), model("bert"), arguments(num_train_epochs=12, learning_rate=3e-3,
            per_device_train_batch_size=100, eval_strategy="epoch"), train_dataset=sentences(600),
            eval_dataset=sentences(100, seed=1), compute_metrics=accuracy)  # fmt: skip
        first = trainer.evaluate()["eval_accuracy"]
        trainer.train()
        assert first < 0.7
        assert trainer.evaluate()["eval_accuracy"] > 0.9
        assert trainer.engine.steps == 72
        assert trainer.engine.epsilon <= 6.0
        assert "(6.0, 0.0001)-DP" in str(trainer.engine.guarantee())

    @pytest.mark.parametrize("workers", [0, 1])
    def test_training_stops_with_the_budget(self, model, sentences, arguments, workers):
        gate = dm.Filter(epsilon=3.0, delta=1e-6)
        trainer = PrivateTrainer(
            gate, model("bert with LoRA"), arguments(num_train_epochs=100,
            dataloader_num_workers=workers), noise_multiplier=1.5, physical_batch_size=9,
            train_dataset=sentences())  # fmt: skip
        trainer.train()
        engine = trainer.engine
        assert 0 < engine.steps == engine.spends < 100
        assert not gate.admits(engine.step_cost())
        assert gate.epsilon <= 3.0

    def test_epsilon_is_told_and_losses_are_not(self, model, sentences, arguments):
        trainer = PrivateTrainer(odometer(), model("bert"), arguments(logging_nan_inf_filter=False),
                                 noise_multiplier=1.0, train_dataset=sentences())  # fmt: skip
        out = trainer.train()
        assert math.isnan(out.training_loss)
        said = [*trainer.state.log_history, out.metrics]
        assert not {"loss", "train_loss", "grad_norm"} & {name for each in said for name in each}
        assert all(0 < each["epsilon"] <= trainer.engine.epsilon + 1e-4 for each in said)
        assert said[-1]["epsilon"] >= trainer.engine.epsilon

    def test_training_again_goes_on_with_the_same_budget(self, model, sentences, arguments):
        trainer = PrivateTrainer((3.0, 1e-5), model("bert"), arguments(), noise_multiplier=2.0,
                                 train_dataset=sentences())  # fmt: skip
        trainer.train()
        gate, before = trainer.gate, trainer.engine.epsilon
        trainer.train()
        assert trainer.gate is gate
        assert trainer.engine.steps == 12
        assert gate.epsilon > before


class TestCheckpoints:
    @pytest.fixture
    def saved(self, model, sentences, arguments):
        settings = arguments(save_strategy="epoch", num_train_epochs=1)
        PrivateTrainer(odometer(), model("bert"), settings, noise_multiplier=1.0,
                       train_dataset=sentences()).train()  # fmt: skip
        return next(pathlib.Path(settings.output_dir).glob("checkpoint-*"))

    def test_a_checkpoint_brings_its_spends(self, saved, model, sentences, arguments):
        gate = odometer()
        trainer = PrivateTrainer(gate, model("bert"), arguments(num_train_epochs=3),
                                 noise_multiplier=1.0, train_dataset=sentences())  # fmt: skip
        trainer.train(resume_from_checkpoint=str(saved))
        assert trainer.engine.steps == trainer.engine.spends == 18
        everything = odometer()
        everything.spend(trainer.engine.step_cost(), 18)
        assert gate.epsilon == pytest.approx(everything.epsilon, rel=1e-6)

    def test_a_budget_too_small_for_it_refuses(self, saved, model, sentences, arguments):
        small = dm.Filter(epsilon=0.5, delta=1e-6)
        trainer = PrivateTrainer(small, model("bert"), arguments(num_train_epochs=2),
                                 noise_multiplier=1.0, train_dataset=sentences())  # fmt: skip
        with pytest.raises(BudgetExceeded):
            trainer.train(resume_from_checkpoint=str(saved))
        assert small.epsilon == dm.Filter(epsilon=0.5, delta=1e-6).epsilon

    def test_one_that_does_not_say_what_was_spent(self, saved, model, sentences, arguments):
        (saved / "privacy.pt").unlink()
        trainer = PrivateTrainer(odometer(), model("bert"), arguments(num_train_epochs=2),
                                 noise_multiplier=1.0, train_dataset=sentences())  # fmt: skip
        with pytest.raises(StateError, match=r"privacy\.pt"):
            trainer.train(resume_from_checkpoint=str(saved))


class TestRefusals:
    @pytest.mark.parametrize("name", ["auto_find_batch_size", "gradient_checkpointing"])
    def test_other_ways_to_touch_gradients(self, model, sentences, arguments, name):
        with pytest.raises(ValueError, match=f"{name} must not be used"):
            PrivateTrainer(odometer(), model("bert"), arguments(**{name: True}),
                           noise_multiplier=1.0, train_dataset=sentences())  # fmt: skip

    def test_noise_that_nobody_chose(self, model, sentences, arguments):
        gate = odometer()
        trainer = PrivateTrainer(gate, model("bert"), arguments(), train_dataset=sentences())
        with pytest.raises(ValueError, match="noise_multiplier must be given"):
            trainer.train()
        assert gate.epsilon == odometer().epsilon

    def test_records_without_labels(self, model, sentences, arguments):
        data = [{k: v for k, v in each.items() if k != "labels"} for each in sentences()]
        trainer = PrivateTrainer(odometer(), model("bert"), arguments(), noise_multiplier=1.0,
                                 train_dataset=data)  # fmt: skip
        with pytest.raises(ValueError, match="labels"):
            trainer.train()

    def test_the_trainers_own_loss_lets_records_touch(self, model, sentences, arguments):
        """What compute_loss is replaced for: more tokens in one record, less weight for others."""
        data = sentences(2, tokens=True)
        data[1]["labels"][6:] = -100
        trainer = Trainer(model("llama"), arguments(), train_dataset=data)
        batch = trainer.data_collator(data)
        items = trainer._get_num_items_in_batch([batch], torch.device("cpu"))
        shorter = trainer._get_num_items_in_batch(
            [trainer.data_collator([data[1], data[1]])], torch.device("cpu")
        )
        assert items != shorter


def accuracy(predictions):
    return {"accuracy": float((predictions.predictions.argmax(-1) == predictions.label_ids).mean())}


def test_two_ranks_train_one_model_on_one_budget(tmp_path):
    script = pathlib.Path(__file__).parent / "ranks.py"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    subprocess.run([*command, str(script), str(tmp_path)], env=environment, check=True,
                   capture_output=True, timeout=300)  # fmt: skip
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    assert first["steps"] == second["steps"] == first["spends"] == 12
    assert first["epsilon"] == second["epsilon"] > 0
    assert first["parameters"] == second["parameters"]


class Halving(Policy):
    """Halves the noise after every epoch."""

    def __init__(self):
        super().__init__(every=1)
        self._seen = []

    def update(self, engine, reading):
        self._seen.append(reading.value)
        engine.noise_multiplier /= 2


class TestPolicies:
    def test_noise_follows_a_policy_also_from_a_checkpoint(self, model, sentences, arguments):
        gate, policy, signal = odometer(), Halving(), CorrectCount(noise_multiplier=20.0)
        settings = arguments(num_train_epochs=2, save_strategy="epoch")
        trainer = PrivateTrainer(gate, model("bert with LoRA"), settings, noise_multiplier=4.0,
                                 policy=policy, signal=signal,
                                 train_dataset=sentences())  # fmt: skip
        trainer.train()
        plain = odometer()
        for noise in (4.0, 2.0):
            plain.spend(dm.SampledGaussian(20 / 120, noise), 6)
            plain.spend(signal.cost)
        assert gate.epsilon == pytest.approx(plain.epsilon, rel=1e-6)
        assert len(policy._seen) == 2
        saved = sorted(pathlib.Path(settings.output_dir).glob("checkpoint-*"))[0]
        state = torch.load(saved / "privacy.pt", weights_only=True)
        assert set(state) == {"engine", "epochs", "steering"}

    def test_a_public_signal_reads_the_evaluation_data_and_ends_training(
        self, model, sentences, arguments
    ):
        trainer = PrivateTrainer(
            odometer(), model("bert"), arguments(num_train_epochs=9), noise_multiplier=2.0,
            policy=StopEarly(target=0.01, every=2), signal=CorrectCount(public=True),
            train_dataset=sentences(), eval_dataset=sentences(30, 1))  # fmt: skip
        trainer.train()
        assert trainer.engine.steps == trainer.engine.spends == 12
        with pytest.raises(ValueError, match="signal must be given"):
            PrivateTrainer(odometer(), model("bert"), arguments(), noise_multiplier=2.0,
                           policy=Halving(), train_dataset=sentences())  # fmt: skip


class TestWatched:
    def trained(self, model, sentences, arguments, run_page, *callbacks, **options):
        gate = dm.Filter(epsilon=8, delta=1e-5)
        trainer = PrivateTrainer(gate, model("bert with LoRA"), arguments(**options),
                                 noise_multiplier=2.0, train_dataset=sentences(),
                                 watch=run_page.url, callbacks=list(callbacks))  # fmt: skip
        trainer.train()
        return trainer, run_page.last

    def test_a_page_is_told_how_training_goes(self, model, sentences, arguments, run_page):
        trainer, told = self.trained(model, sentences, arguments, run_page, num_train_epochs=2)
        assert (told["state"], told["ended"], told["epochs"]) == ("ended", "it was done", 2)
        assert [row["epoch"] for row in told["history"]] == [1, 2]
        assert told["history"][-1]["epsilon"] == trainer.gate.epsilon
        assert told["name"]

    def test_its_button_ends_training_at_the_next_step(
        self, model, sentences, arguments, run_page, monkeypatch
    ):
        monkeypatch.setattr(watching, "_EVERY", 0.001)

        class Press(TrainerCallback):
            def on_epoch_end(self, *_, **__):
                run_page.stop = True

        trainer, told = self.trained(model, sentences, arguments, run_page, Press(),
                                     num_train_epochs=1000)  # fmt: skip
        assert trainer.engine.stopped == told["ended"] == STOPPED
        assert trainer.engine.steps == trainer.engine.spends < 6000
        assert told["history"][-1]["epsilon"] == trainer.gate.epsilon

    def test_training_that_fails_is_not_said_to_be_done(
        self, model, sentences, arguments, run_page, monkeypatch
    ):
        class Break(TrainerCallback):
            def on_step_end(self, *_, **__):
                raise RuntimeError("broken")

        ended = []
        monkeypatch.setattr(watching.Watch, "end", lambda _, *how: ended.append(how))
        with pytest.raises(RuntimeError, match="broken"):
            self.trained(model, sentences, arguments, run_page, Break())
        assert ended == [("failed", "RuntimeError")]
