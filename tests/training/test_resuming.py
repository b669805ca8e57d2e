"""A run goes on as it was begun; another call, and a file that is no checkpoint, is refused."""

import re

import pytest
import torch

import dosimeter as dm
from dosimeter.training import AdaptNoise, AutoRate, CorrectCount, StopEarly, fit

BUDGET = {"epsilon": 8.0, "delta": 1e-6}
OWN = {"epochs": 2, "noise_multiplier": 2.0, "batch_size": 40, "progress": False}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.pt"


@pytest.fixture
def begin(points, classifier, path):
    """Trains two epochs, or goes on with them."""

    def run(**changed):
        options = {**BUDGET, **OWN, **changed}
        data = options.pop("dataset", points())
        return fit(options.pop("model", classifier()), data, checkpoint=path, **options)

    return run


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"epsilon": 9.0}, "epsilon must stay 8, got 9"),
        ({"delta": 1e-7}, "delta must stay 1e-06, got 1e-07"),
        ({"batch_size": 50}, "batch_size must stay 40, got 50"),
        ({"noise_multiplier": 3.0}, "noise_multiplier must stay 2, got 3"),
        ({"noise_multiplier": None}, "noise_multiplier must stay 2, got "),
        ({"max_grad_norm": 0.5}, "clipping must stay normalised, got flat"),
        ({"learning_rate": 0.5}, "learning_rate must stay AutoRate(reach=30, momentum=0.9), got"),
        ({"optimizer": torch.optim.Adam}, "learning_rate must stay AutoRate"),
        (
            {"policy": StopEarly(patience=9), "signal": CorrectCount()},
            "policy must stay left out, got",
        ),
    ],
)
def test_a_run_is_not_gone_on_with_as_another(begin, path, changed, words):
    begin()
    before = path.read_bytes()
    with pytest.raises(ValueError, match=re.escape(words)) as refused:
        begin(**changed)
    assert f"for the checkpoint {path} was written with it" in str(refused.value)
    assert "another checkpoint file" in str(refused.value)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("gate", "words"),
    [
        (lambda: dm.Filter(30, 1e-6), "epsilon must stay 8, got 30"),
        (lambda: dm.Filter(8, 1e-7), "delta must stay 1e-06, got 1e-07"),
        (lambda: dm.Odometer(1e-6), "epsilon must stay 8, got inf"),
    ],
)
def test_nor_under_another_gate_which_is_not_charged(begin, gate, words):
    begin()
    other = gate()
    with pytest.raises(ValueError, match=re.escape(words)):
        begin(epsilon=None, delta=None, gate=other)
    assert other.epsilon == 0


def test_rates_that_were_given_are_kept_too(begin):
    begin(learning_rate=0.5, max_grad_norm=1.0)
    for changed, words in [
        ({"learning_rate": 0.4}, r"learning_rate must stay 0\.5, got 0\.4"),
        ({"learning_rate": AutoRate(reach=3.0)}, r"learning_rate must stay 0\.5, got AutoRate"),
        ({"max_grad_norm": 2.0}, "max_grad_norm must stay 1, got 2"),
    ]:
        with pytest.raises(ValueError, match=words):
            begin(**{"learning_rate": 0.5, "max_grad_norm": 1.0, **changed})
    assert len(begin(learning_rate=0.5, max_grad_norm=1.0, epochs=3)) == 3


def test_so_is_the_noise_that_was_chosen_for_some_epochs(begin):
    chosen = {"noise_multiplier": None, "epochs": 4}
    history = begin(**chosen)
    noise = history[0].noise_multiplier
    for other in (8, 3):
        with pytest.raises(ValueError, match=f"epochs must stay 4, got {other}, for the checkp"):
            begin(**{**chosen, "epochs": other})
    again = begin(**chosen)
    assert again.epochs == history.epochs
    assert again.guarantee == history.guarantee
    longer = begin(noise_multiplier=noise, epochs=5)
    assert len(longer) in (4, 5)
    assert longer.epsilon <= 8


@pytest.mark.parametrize("name", ["told", "engine", "policies", "history", "ruled"])
def test_a_checkpoint_that_lacks_a_part_is_refused(begin, path, name):
    begin()
    state = torch.load(path, weights_only=True)
    del state[name]
    torch.save(state, path)
    with pytest.raises(dm.StateError, match="checkpoint must be a file as training wrote it"):
        begin(epochs=3)


@pytest.mark.parametrize("name", ["average", "following"])
def test_so_is_one_without_what_followed_the_steps_before_anything_is_charged(begin, path, name):
    begin()
    state = torch.load(path, weights_only=True)
    del state[name]
    torch.save(state, path)
    gate = dm.Filter(8, 1e-6)
    with pytest.raises(dm.StateError, match="checkpoint must be of a run like this one"):
        begin(gate=gate, epsilon=None, delta=None)
    assert gate.epsilon == 0


def test_one_that_has_spent_more_than_there_is_says_where_it_came_from(begin, path):
    begin()
    state = torch.load(path, weights_only=True)
    state["told"] = {}
    torch.save(state, path)
    with pytest.raises(dm.BudgetExceeded) as refused:
        begin(epsilon=1.0)
    assert f"The checkpoint {path} holds a run that has spent more" in refused.value.__notes__[0]


def test_what_was_refused_can_be_put_right_with_the_model_at_hand(begin, classifier):
    whole = begin(epochs=3, learning_rate=0.5, seed=3)
    model = classifier()
    with pytest.raises(ValueError, match="learning_rate must stay"):
        begin(epochs=4, learning_rate=0.4, seed=3, model=model)
    again = begin(epochs=4, learning_rate=0.5, seed=3, model=model)
    assert again.epochs[:3] == whole.epochs
    assert len(again) == 4


@pytest.mark.parametrize(
    "content", [b"", b"junk", b"PK\x03\x04 and so on", None, {}, {"a": 1}, "told"]
)
def test_a_file_that_is_no_checkpoint_is_refused_in_words(begin, path, content):
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content == "told":
        begin()
        torch.save(torch.load(path, weights_only=True) | {"told": 7}, path)
    elif content is None:
        begin()
        path.write_bytes(path.read_bytes()[:-500])
    else:
        torch.save(content, path)
    with pytest.raises(dm.StateError, match="checkpoint must be a file as training wrote it"):
        begin()


def test_so_is_that_of_another_model_before_anything_is_charged(begin, path):
    begin()
    gate = dm.Filter(8, 1e-6)
    with pytest.raises(dm.StateError, match="of a model like this one") as refused:
        begin(model=torch.nn.Linear(6, 2), gate=gate, epsilon=None, delta=None)
    assert str(path) in str(refused.value)
    assert gate.epsilon == 0


def test_and_one_of_another_part_that_is_trained(begin, classifier):
    begin()
    model, gate = classifier(), dm.Filter(8, 1e-6)
    model[0].requires_grad_(False)
    with pytest.raises(dm.StateError, match="checkpoint must be of a run like this one"):
        begin(model=model, gate=gate, epsilon=None, delta=None)
    assert gate.epsilon == 0


def test_and_one_of_other_data(begin, points):
    begin()
    with pytest.raises(ValueError, match="records must stay 200, got 150"):
        begin(dataset=points(count=150))


def test_policies_are_counted_before_anything_is_charged(begin, path):
    begin(policy=AdaptNoise(), signal=CorrectCount())
    state = torch.load(path, weights_only=True)
    state["told"] = {}
    torch.save(state, path)
    gate = dm.Filter(8, 1e-6)
    with pytest.raises(dm.StateError, match="a run with 0 policies, got one with 1"):
        begin(gate=gate, epsilon=None, delta=None)
    assert gate.epsilon == 0


def test_a_folder_that_is_not_there_is_found_before_anything_is_spent(points, classifier, tmp_path):
    gate = dm.Filter(8.0, 1e-6)
    with pytest.raises(FileNotFoundError, match="checkpoint must lie in a folder that is there"):
        fit(classifier(), points(), gate, checkpoint=tmp_path / "no" / "run.pt", **OWN)
    assert gate.epsilon == 0
