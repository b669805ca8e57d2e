"""A config with a table [search] is read strictly: wrong keys are named with their line."""

import dataclasses
import math

import pytest

from configs import write_config
from dosimeter.runs import read_config
from dosimeter.search.table import SearchTable, read_search

SPACE = """
[search]
trials = 9

[search.space]
training.learning_rate = { low = 0.05, high = 5.0, log = true }
training.batch_size = { low = 8, high = 64, log = true }
model.hidden = [16, 32]
"""


@pytest.fixture
def config(tmp_path):
    def write(space=SPACE, **changes):
        path = tmp_path / "config.toml"
        write_config(path, **{"model": {"kind": "mlp"}, **changes})
        path.write_text(path.read_text() + space)
        return path

    return write


def test_settings_come_from_the_space_and_make_runs(config):
    search = read_search(config())
    for _ in range(200):
        drawn = {axis.key: axis.draw() for axis in search.space}
        assert 0.05 <= drawn["training.learning_rate"] <= 5
        assert drawn["training.batch_size"] in range(8, 65)
        made = search.with_settings(drawn)
        assert made.training.learning_rate == drawn["training.learning_rate"]
        assert made.model.hidden in (16, 32)
    assert search.config.training.batch_size == 40  # as it was


def test_log_ranges_are_drawn_evenly_in_the_logarithm(config):
    """Half the draws are below the geometric mean; 2,000 draws, false alarms below 1e-6."""
    axis = read_search(config()).space[0]
    below = sum(axis.draw() < math.sqrt(0.05 * 5.0) for _ in range(2000))
    assert abs(below - 1000) < 5 * math.sqrt(500)


WRONG = [
    (
        "training.learning_rat = [1.0]",
        "line 22: search.space.training.learning_rat must be a known",
    ),
    ("training.learning_rat = [1.0]", "did you mean 'learning_rate'?"),
    ("trainig.momentum = [0.5]", "did you mean 'training'?"),
    ("data.path = ['a']", "search.space.data must be a known name"),
    ("training.seed = [1]", "line 22: search.space.training.seed must be left out"),
    ("training.epochs = [1, 2]", "the budget decides how long a trial lasts"),
    ("training.momentum = 0.5", "must be a list of choices or a range"),
    ("training.momentum = []", "must list one or more values"),
    ("training.momentum = { low = 0.5, hihg = 1 }", "did you mean 'high'?"),
    ("training.momentum = { low = 0.5 }", "must have a low and a higher high"),
    ("training.momentum = { low = 0.9, high = 0.1 }", "must have a low and a higher high"),
    ("training.momentum = { low = 0.0, high = nan }", "must have a low and a higher high"),
    ("training.momentum = { low = 0.0, high = 0.9, log = true }", "a low above 0 for log = true"),
    ("training.batch_size = { low = 1.5, high = 9 }", "must be between whole numbers"),
    ("model.kind = { low = 1, high = 2 }", "must be a list of choices, for it is no number"),
    ("training = [1]", "search.space.training must name a key"),
]


@pytest.mark.parametrize(("line", "words"), WRONG)
def test_a_wrong_space_is_told_with_its_line(config, line, words):
    path = config(f"[search]\ntrials = 9\n[search.space]\n{line}\n")
    with pytest.raises(ValueError, match=r"config\.toml") as told:
        read_search(path)
    assert words in str(told.value)


TABLES = [
    ("trails = 9", {}, "line 20: search.trails must be a known name, got 'trails'; did you mean"),
    ("trials = 0", {}, "search.trials must be between 1"),
    ("reduction = 1", {}, "search.reduction must be at least 2"),
    ("method = 'best_of'\nreduction = 3", {}, "search.reduction must be left out for best_of"),
    ("eta = 1.0", {}, "search.eta must be left out for halving"),
    ("holdout = 1.5", {}, "search.holdout must lie strictly between 0 and 1"),
    ("public = true", {}, "search.public must be false unless"),
    ("", {"budget": {"kind": "odometer", "epsilon": None}}, "budget.kind must have a limit"),
    ("", {"training": {"seed": 3}}, "training.seed must be left out"),
    ("", {"stop": {"patience": 3}}, "stop must be left out of a search"),
    ("method = 'best_of'", {}, "search.space.training.batch_size must be left out for best_of"),
]


@pytest.mark.parametrize(("lines", "changes", "words"), TABLES)
def test_a_wrong_table_is_told(config, lines, changes, words):
    space = f"[search]\n{lines}\n[search.space]\ntraining.batch_size = [20, 40]\n"
    with pytest.raises(ValueError, match=r"config\.toml") as told:
        read_search(config(space, **changes))
    assert words in str(told.value)


def test_what_is_missing_is_told(config):
    with pytest.raises(ValueError, match=r"write \[search\]"):
        read_search(config(""))
    with pytest.raises(ValueError, match=r"write \[search\.space\]"):
        read_search(config("[search]\ntrials = 3\n"))


def test_a_run_with_a_search_in_it_is_sent_to_tune(config):
    with pytest.raises(ValueError, match="dosimeter tune searches"):
        read_config(config())


GIVEN = [
    ("method", "'halving'", "halving"),
    ("method", "'best_of'", "best_of"),
    ("trials", "5", 5),
    ("reduction", "2", 2),
    ("sampler", "'random'", "random"),
    ("sampler", "'tpe'", "tpe"),
    ("eta", "1", 1.0),
    ("holdout", "0.3", 0.3),
    ("score_share", "0.2", 0.2),
    ("public", "true", True),
]


def table(key, value):
    method = "method = 'best_of'\n" if key == "eta" else ""
    return f"[search]\n{method}{key} = {value}\n[search.space]\ntraining.momentum = [0.5]\n"


@pytest.mark.parametrize(("key", "value", "read"), GIVEN)
def test_every_key_of_the_table_is_read(config, key, value, read):
    found = getattr(read_search(config(table(key, value), data={"public_share": 0.2})).table, key)
    assert found == read
    assert type(found) is type(read)


def test_no_key_of_the_table_is_left_out_of_these_tests():
    assert {key for key, _, _ in GIVEN} == {one.name for one in dataclasses.fields(SearchTable)}


@pytest.mark.parametrize("key", sorted({key for key, _, _ in GIVEN}))
def test_no_key_of_the_table_takes_a_table(config, key):
    with pytest.raises(ValueError, match=rf"config\.toml.*search\.{key} must be .*, got \{{\}}"):
        read_search(config(table(key, "{}")))


def test_a_sampler_that_there_is_not_is_told(config):
    with pytest.raises(ValueError, match=r"search\.sampler must be one of tpe, random, got 'tep'"):
        read_search(config(table("sampler", "'tep'")))
