"""A golden finds what changed, and nothing else."""

import pytest

import goldens


def test_compare_names_changed_missing_and_new_cases(tmp_path, monkeypatch):
    monkeypatch.setattr(goldens, "DATA", tmp_path)
    monkeypatch.setenv("RECORD_GOLDENS", "1")
    goldens.compare("example", {"same": 1, "changed": (1.5).hex(), "missing": [1, 2]})
    monkeypatch.delenv("RECORD_GOLDENS")

    goldens.compare("example", {"same": 1, "changed": (1.5).hex(), "missing": [1, 2]})
    with pytest.raises(AssertionError, match="3 of 3 cases") as failure:
        goldens.compare("example", {"same": 1, "changed": (1.25).hex(), "too": None})
    assert all(word in str(failure.value) for word in ("changed", "missing", "too"))


def test_compare_reads_recorded_names_through_the_renames(tmp_path, monkeypatch):
    monkeypatch.setattr(goldens, "DATA", tmp_path)
    monkeypatch.setenv("RECORD_GOLDENS", "1")
    goldens.compare("example", {"case": {"old_name": 1}})
    monkeypatch.delenv("RECORD_GOLDENS")

    monkeypatch.setattr(goldens, "RENAMES", {'"old_name"': '"new_name"'})
    goldens.compare("example", {"case": {"new_name": 1}})


def test_compare_allows_other_last_digits_on_other_processors_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(goldens, "DATA", tmp_path)
    monkeypatch.setenv("RECORD_GOLDENS", "1")
    one = 1.0000000000000002
    recorded = {
        "hex": [(1.0).hex(), "spent 1.5e-3 of 70,007, as"],
        "count": 10**6,
        "bits": "bits 12",
    }
    goldens.compare("example", recorded, near=1e-9)
    monkeypatch.delenv("RECORD_GOLDENS")
    near = {
        "hex": [one.hex(), "spent 0.0015 of 70,007.00001, as"],
        "count": 10**6 + 1,
        "bits": "bits 34",
    }

    goldens.compare("example", recorded, near=1e-9)
    with pytest.raises(AssertionError, match="3 of 4 cases"):
        goldens.compare("example", near, near=1e-9)
    monkeypatch.setattr(goldens, "arithmetic", lambda: "another")
    goldens.compare("example", near, near=1e-9)
    for case, other in (
        ("hex", [(1.00001).hex(), "spent 1.5e-3 of 70,007, as"]),
        ("hex", [(1.0).hex(), "spent 1.5e-3 at 70,007"]),
        ("hex", [(1.0).hex()]),
        ("count", 10**6 + 2 * 10**3),
        ("bits", None),
    ):
        with pytest.raises(AssertionError, match="1 of 4 cases"):
            goldens.compare("example", {**near, case: other}, near=1e-9)
