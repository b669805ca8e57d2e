"""Flower is imported once, with the warnings of its own imports left aside."""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import flwr.clientapp
    import flwr.serverapp.strategy  # noqa: F401
