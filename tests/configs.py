"""A small table of two classes and a config for it, shared by the suites."""

import csv
import json

import numpy as np

BASE = {
    "data": {
        "kind": "csv",
        "path": "points.csv",
        "label": "sick",
        "classes": ["no", "yes"],
        "bounds": [0, 100],
    },
    "model": {"kind": "linear"},
    "budget": {"kind": "filter", "epsilon": 4.0, "delta": 1e-5},
    "training": {"epochs": 3, "batch_size": 40, "noise_multiplier": 2.0},
    "output": {"folder": "run"},
}


def points(count=120):
    """Two classes that a line can tell apart, with values far from 1."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 100, (count, 3))
    return x, (x[:, 0] > x[:, 1]).astype(int)


def write_points(path):
    """The points as a CSV with the labels in its second column."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["a", "sick", "b", "c"])
        for (a, b, c), label in zip(*points(), strict=True):
            writer.writerow([a, ("no", "yes")[label], b, c])


def changed(**changes):
    """The tables of the config with some values changed; None takes a key or a table out."""
    tables = dict(BASE)
    for table, values in changes.items():
        both = {**tables.pop(table, {}), **(values or {})}
        if values is not None:
            tables[table] = {key: value for key, value in both.items() if value is not None}
    return tables


def write_config(path, **changes):
    """Writes the config, changed."""
    lines = []
    for table, values in changed(**changes).items():
        lines.append(f"[{table}]")
        lines += [f"{key} = {json.dumps(value)}" for key, value in values.items()]
    path.write_text("\n".join(lines) + "\n")
