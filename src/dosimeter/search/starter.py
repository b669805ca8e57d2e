# SPDX-License-Identifier: Apache-2.0
"""The config that `dosimeter tune --init` writes: it runs as it is, and says what else goes."""

STARTER = """\
# A search for good settings, charged as a whole. Start it with: dosimeter tune config.toml
# All tables but [search] are those of dosimeter train, and a run by themselves.

[data]
kind = "digits"         # scikit-learn's digits; or "images", "cifar", "npz", "csv"
# public_share = 0.2    # set aside and NOT protected: shows accuracy, and can score trials

[model]
kind = "mlp"
hidden = 32

[budget]
kind = "filter"         # the search keeps it in its folder; or kind = "ledger"
epsilon = 8.0           # of the WHOLE search: all trials, all scores, and the winner
delta = 1e-5

[training]
epochs = 30             # of the winner; the others end earlier
batch_size = 256
max_grad_norm = 1.0
learning_rate = 0.5
# noise_multiplier = 4.0    # left out: the least with which the budget pays for the search

[search]
method = "halving"      # all trials are paid for, the worse ones end early; or "best_of":
                        # full trials of which only the best is published
trials = 9              # halving: how many begin; best_of: how many are expected
# reduction = 3         # halving: one in three goes on
# sampler = "random"    # halving: what proposes settings; "tpe" learns from scores
# eta = 0.0             # best_of: 0 logarithmic, 1 geometric
# holdout = 0.2         # the share of the private records that scores are read on
# score_share = 0.1     # the share of the budget that pays for scores
# public = true         # score the public records instead, exactly and at no cost

[search.space]          # keys of [model] and [training]
training.learning_rate = { low = 0.05, high = 5.0, log = true }
training.momentum = [0.0, 0.9]
model.hidden = { low = 16, high = 64 }

[output]
folder = "search"       # must be new
"""
