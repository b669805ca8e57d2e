"""The ready-made networks give one score a class and keep records apart."""

import pytest
import torch
from opacus.validators import ModuleValidator

from dosimeter.training import networks

IMAGE = (3, 32, 32)


@pytest.mark.parametrize(
    "model",
    [
        networks.linear(3 * 32 * 32, 10),
        networks.mlp(3 * 32 * 32, 10),
        networks.small_cnn(3, 10),
    ],
    ids=lambda model: type(model).__name__,
)
def test_scores_do_not_depend_on_the_other_records(model):
    x = torch.randn(5, *IMAGE)
    scores = model(x)
    assert scores.shape == (5, 10)
    torch.testing.assert_close(model(x[2:3]), scores[2:3], atol=1e-5, rtol=1e-4)
    assert ModuleValidator.is_valid(model)
