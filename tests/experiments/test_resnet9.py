"""The ResNet9 keeps records apart and has its usual size."""

import torch
from opacus.validators import ModuleValidator

from experiments.resnet9 import Resnet9


def test_scores_do_not_depend_on_the_other_records():
    model = Resnet9(3, 10, width=8)
    x = torch.randn(5, 3, 32, 32)
    scores = model(x)
    assert scores.shape == (5, 10)
    torch.testing.assert_close(model(x[2:3]), scores[2:3], atol=1e-5, rtol=1e-4)
    assert ModuleValidator.is_valid(model)


def test_it_has_its_usual_size():
    count = sum(parameter.numel() for parameter in Resnet9(3, 10).parameters())
    assert 6.5e6 < count < 6.6e6
