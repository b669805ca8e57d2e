"""Adversaries who need no theory: what they reach is a lower bound on the truth.

Nothing here is taken from the library's lattices, losses or tables. `pairs` writes down what two
neighbouring data sets give, `observer` and `counts` look at the outputs, `player` chooses what to
buy next and when to stop, `gates` draws gates at random and `search` sets one against the other.
"""
