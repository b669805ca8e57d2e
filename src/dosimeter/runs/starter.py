# SPDX-License-Identifier: Apache-2.0
"""The configs that `dosimeter train --init` writes, which say what else goes.

One runs as it is; one for a table of yours names its columns and leaves you to say what they hold.
"""

import json
import os
import re
from collections.abc import Sequence

STARTER = """\
# A private training run. Start it with: dosimeter train config.toml
# Paths are relative to where you start it.

[data]
kind = "digits"         # scikit-learn's digits; or "csv", "npz"
# path = "patients.csv" # csv, npz: the file
# label = "diagnosis"   # csv: the column of labels; all others must hold numbers
# classes = ["no", "yes"]   # csv, npz: the classes, or how many there are
# bounds = [0, 100]     # csv, npz: what the values can be, known without looking at the data;
                        # or for each column: bounds = { age = [0, 120], weight = [0, 300] }
public_share = 0.2      # set aside to measure accuracy, and so NOT protected; leave it out
                        # to protect all records and see no accuracy
# public_test = true    # the same for the test part of data that has one

[model]
kind = "mlp"            # or "linear", "cnn", "features", "my_module:my_factory"
hidden = 32
# extractor = "random"  # features: what makes them, frozen; or "my_module:make"

[budget]
kind = "filter"         # never passes epsilon; "odometer" reads it (leave epsilon out)
epsilon = 4.0
delta = 1e-5            # well below one over the number of records
# menu = false          # do not price beforehand what the run can ask for: more noise
# kind = "ledger"       # a budget that others spend from too; leave epsilon and delta out
# ledger = "sqlite:///budgets.db"
# name = "patients"

[training]              # a filter needs none of these: what is left out is chosen
# epochs = 30               # left out: as many as make 400 steps
# batch_size = 256          # left out: from the number of records
# noise_multiplier = 4.0    # left out: the least with which the budget lasts for the epochs
# max_grad_norm = 1.0       # left out: all gradients get the same length
# learning_rate = 0.2       # left out: it follows what released gradients show
# momentum = 0.9
# physical_batch_size = 64  # if memory is short
# seed = 1              # repeatable, and so NOT private

# [policy]              # save budget while learning is easy
# kind = "adapt_noise"  # or "adapt_batch", "lower_noise"
# step = 0.5
# every = 5
# horizon = 5
# levels = 6            # adapt_noise: how many times noise may be added
# start = 8.0           # lower_noise: what it begins with; leave training.noise_multiplier out
# minimum = 16          # adapt_batch: the smallest batch; lower_noise: the least noise

# [stop]                # end early
# target = 0.95         # share of the training records that is right
# patience = 3          # readings without a rise
# every = 5

# [signal]              # what policy and stop read; each reading is paid for
# kind = "correct_count"    # or "mean_loss"
# noise_multiplier = 30.0
# bound = 5.0           # mean_loss: the largest loss that counts
# public = true         # read the public records, exactly and at no cost

[output]
folder = "run"          # must be new
"""

_TABLE = """\
# A private training run on a table. Start it with: dosimeter train {config}
# Paths are relative to where you start it. To make this file only the first line of the table
# was read, the names of its columns: what is in them is private. Fill in classes and bounds from
# what is known without looking: the form that was filled in, the range of the instrument.

[data]
kind = "csv"
path = {path}
label = {label}
classes = []            # FILL IN every class that there can be: classes = ["no", "yes"]
# public_share = 0.1    # set aside to measure accuracy, and so NOT protected; without it all
                        # records are protected, and no accuracy is shown

[data.bounds]           # FILL IN the least and the greatest value that each column can have,
                        # as in [0, 120]; what lies outside is clipped
{bounds}

"""


def starter_for(
    columns: Sequence[str],
    *,
    path: str | os.PathLike[str],
    label: str,
    config: str | os.PathLike[str],
) -> str:
    """A config for a CSV, with the names of its columns and nothing of what is in them."""
    return (
        _TABLE.format(
            config=config,
            path=_text(os.fspath(path)),
            label=_text(label),
            bounds="\n".join(f"{toml_name(name)} = []" for name in columns),
        )
        + STARTER[STARTER.index("[model]") :]
    )


def toml_name(name: str) -> str:
    """A name as a key of TOML: in quotes, unless it is letters, digits, - and _ alone."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _text(name)


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
