"""A finished run is kept and not done again; one that failed is."""

import os

import pytest

from experiments import seeds


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DOSIMETER_CACHE", str(tmp_path))


def marked(settings, seed, tell):
    """Leaves a trace of having been run, and fails where it is told to."""
    with open(settings["trace"], "a") as file:
        file.write(f"{settings['value']} {seed}\n")
    tell(1, 1, "done")
    if seed == 2 and not os.path.exists(settings["trace"] + ".mended"):
        raise RuntimeError("broken")
    return {"value": settings["value"] * seed, "threads": os.environ["OMP_NUM_THREADS"]}


def test_finished_seeds_are_not_run_again(tmp_path):
    trace = str(tmp_path / "trace")
    arms = {name: {"value": value, "trace": trace} for name, value in (("one", 1), ("ten", 10))}
    with pytest.raises(RuntimeError, match="broken"):
        seeds.run_all("work", arms, range(3), marked, jobs=1)
    (tmp_path / "trace.mended").touch()
    results = seeds.run_all("work", arms, range(3), marked, jobs=2)
    assert [kept["result"]["value"] for kept in results["ten"]] == [0, 10, 20]
    assert {kept["result"]["threads"] for kept in results["one"]} == {"1"}
    assert [kept["seed"] for kept in results["one"]] == [0, 1, 2]
    assert all(len(kept["commit"].split()[0]) == 40 for kept in results["one"])
    lines = (tmp_path / "trace").read_text().split("\n")
    assert lines.count("1 0") == lines.count("10 1") == 1
    assert lines.count("1 2") == 2
    again = seeds.run_all("work", arms, range(3), pytest.fail, jobs=1)
    assert again == results


def test_other_settings_are_another_run():
    first, second = (seeds.place("work", {"noise": noise}, 0) for noise in (1.0, 1.1))
    assert first != second
    assert first == seeds.place("work", {"noise": 1.0}, 0)
