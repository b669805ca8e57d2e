"""Menus are computed once; whatever is wrong with a file on disk, they are computed again."""

import json

import pytest

import dosimeter as dm
from dosimeter.accounting.priced import cache
from dosimeter.compare.adversaries import FiniteMechanism

KEY = {"epsilon": 1.0, "delta": 1e-6}
COSTS = [dm.Gaussian(10.0)]


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("DOSIMETER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


class Once:
    def __init__(self):
        self.calls = 0

    def __call__(self):
        self.calls += 1
        return {"quanta": 7}


def anything(found):
    """Confirms whatever it is given."""


def ask(compute, **edit):
    return cache.remembered("menu", COSTS, {**KEY, **edit}, compute, anything)


def test_what_was_computed_is_found_again(place):
    compute = Once()
    assert ask(compute) == ask(compute) == {"quanta": 7}
    assert compute.calls == 1
    assert len(list(place.iterdir())) == 1


def test_other_parameters_are_another_entry(monkeypatch):
    compute = Once()
    ask(compute)
    ask(compute, epsilon=1.0000000000000002)
    cache.remembered("menu", [dm.Gaussian(10.000000000000002)], KEY, compute, anything)
    monkeypatch.setattr(dm, "__version__", "9.9.9")
    ask(compute)
    assert compute.calls == 4


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: text[:-5],
        lambda text: text.replace('"quanta": 7', '"quanta": 8'),
        lambda text: "[]",
        lambda text: "null",
        lambda text: json.dumps({**json.loads(text), "key": {}}),
        lambda text: "\ufffd" + text,
        lambda text: "[" * 100_000,
    ],
)
def test_damaged_files_are_computed_again_and_mended(place, damage):
    compute = Once()
    ask(compute)
    (path,) = place.iterdir()
    path.write_text(damage(path.read_text()))
    assert ask(compute) == {"quanta": 7}
    assert compute.calls == 2
    ask(compute)
    assert compute.calls == 2


def test_bytes_that_are_no_text_are_computed_again(place):
    compute = Once()
    ask(compute)
    (path,) = place.iterdir()
    path.write_bytes(b"\xff\xfe\x00")
    ask(compute)
    assert compute.calls == 2


def test_a_folder_that_cannot_be_written_costs_only_time(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DOSIMETER_CACHE", str(tmp_path / "file" / "below"))
    compute = Once()
    assert ask(compute) == ask(compute)
    assert compute.calls == 2


def test_an_empty_name_turns_it_off(monkeypatch):
    monkeypatch.setenv("DOSIMETER_CACHE", "")
    assert cache.folder() is None
    compute = Once()
    ask(compute)
    ask(compute)
    assert compute.calls == 2


def test_the_folder_is_the_users_own(monkeypatch, tmp_path):
    monkeypatch.delenv("DOSIMETER_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.folder() == tmp_path / "dosimeter"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache.folder() == tmp_path / ".cache" / "dosimeter"


def test_without_a_home_there_is_no_folder(monkeypatch):
    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("DOSIMETER_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(cache.pathlib.Path, "home", homeless)
    assert cache.folder() is None
    assert ask(Once()) == {"quanta": 7}


def test_costs_of_ones_own_are_not_kept(place):
    compute = Once()
    for _ in range(2):
        cache.remembered("menu", [FiniteMechanism((1.0,), (0.1,))], KEY, compute, anything)
    assert compute.calls == 2
    assert not place.exists()


def test_a_filter_from_the_cache_is_the_same(place):
    one, two = (dm.Filter(1.0, 1e-6, menu=COSTS) for _ in range(2))
    apart = {"mark", "checksum"}  # what tells one gate from another
    assert {k: v for k, v in one.state().items() if k not in apart} == {
        k: v for k, v in two.state().items() if k not in apart
    }
    assert len(list(place.iterdir())) == 1


def test_a_poisoned_file_with_a_right_checksum_is_not_believed(place):
    honest = dm.Filter(1.0, 1e-6, menu=COSTS)
    (path,) = place.iterdir()
    kept = json.loads(path.read_text())
    for edit in ({"quanta": 10**9}, {"delta": 1e-3}, {"bundles": [[10**9, 1]]}):
        content = {**kept["content"], **edit}
        poisoned = {**kept, "content": content, "checksum": cache._digest([kept["key"], content])}
        path.write_text(json.dumps(poisoned))
        assert dm.Filter(1.0, 1e-6, menu=COSTS).menu == honest.menu, edit
    assert json.loads(path.read_text()) == kept


def test_a_file_that_gives_a_menu_more_of_delta_takes_it_from_the_mixture(place):
    """The menu is sound for its own share, which is all that a second computation can say."""
    dm.Filter(4.0, 1e-6, menu=COSTS)
    (path,) = place.iterdir()
    kept = json.loads(path.read_text())
    content = {**kept["content"], "delta": 0.96e-6}
    poisoned = {**kept, "content": content, "checksum": cache._digest([kept["key"], content])}
    path.write_text(json.dumps(poisoned))
    gate = dm.Filter(4.0, 1e-6, menu=COSTS)
    assert gate.menu.delta + gate.menu.credit + gate.account.terms.mixture.delta <= 1e-6


def test_nor_is_a_poisoned_ladder(place):
    honest = dm.Odometer(1e-6, menu=COSTS, plan=(COSTS[0], 20))
    (path,) = place.iterdir()
    kept = json.loads(path.read_text())
    content = {**kept["content"], "readings": [0.9 * r for r in kept["content"]["readings"]]}
    poisoned = {**kept, "content": content, "checksum": cache._digest([kept["key"], content])}
    path.write_text(json.dumps(poisoned))
    again = dm.Odometer(1e-6, menu=COSTS, plan=(COSTS[0], 20)).state()
    assert again["readings"] == honest.state()["readings"]
