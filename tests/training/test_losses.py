"""A loss that sees one record at a time: nothing that one record has can move another's."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from dosimeter.training.losses import RecordLoss

RECORDS = 6


def gradients(loss, output, *labels):
    output = output.clone().requires_grad_()
    loss(output, *labels).backward()
    return output.grad


def test_the_usual_losses_are_as_they_were():
    scores, classes = torch.randn(RECORDS, 4), torch.randint(0, 4, (RECORDS,))
    for loss_fn, labels in [
        (nn.CrossEntropyLoss(), classes),
        (nn.CrossEntropyLoss(label_smoothing=0.1), classes),
        (nn.MSELoss(), torch.randn(RECORDS, 4)),
        (nn.BCEWithLogitsLoss(), torch.rand(RECORDS, 4)),
        (nn.SmoothL1Loss(), torch.randn(RECORDS, 4)),
        (functional.cross_entropy, classes),
        (lambda out, y: (out[:, 0] * y).mean(), torch.randn(RECORDS)),
    ]:
        mine = gradients(RecordLoss(loss_fn, mean=True), scores, labels)
        torch.testing.assert_close(mine, gradients(loss_fn, scores, labels))
    total = nn.CrossEntropyLoss(reduction="sum")
    mine = gradients(RecordLoss(total, mean=False), scores, classes)
    torch.testing.assert_close(mine, gradients(total, scores, classes))


def test_the_loss_function_itself_is_left_alone():
    loss_fn = nn.CrossEntropyLoss()
    RecordLoss(loss_fn, mean=True)
    assert loss_fn.reduction == "mean"


COUPLED = {
    "broadcasting": (nn.MSELoss(), torch.randn(RECORDS, 1), torch.randn(RECORDS)),
    "ignored labels": (
        nn.CrossEntropyLoss(), torch.randn(RECORDS, 4), torch.tensor([1, -100, 2, -100, 3, 0]),
    ),
    "ignored tokens": (
        nn.CrossEntropyLoss(), torch.randn(RECORDS, 4, 3),
        torch.randint(0, 4, (RECORDS, 3)).index_fill(0, torch.tensor([1, 3]), -100),
    ),
    "class weights": (
        nn.CrossEntropyLoss(weight=torch.tensor([1.0, 50.0, 2.0, 9.0])), torch.randn(RECORDS, 4),
        torch.tensor([0, 1, 2, 3, 0, 1]),
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.parametrize("case", COUPLED)
def test_a_record_moves_no_other(case):
    loss_fn, output, labels = COUPLED[case]
    other, others = output.clone(), labels.clone()
    other[1], others[1] = output[0], labels[0]
    rest = [0, 2, 3, 4, 5]
    # The plain loss does let one record move the others: the test would notice.
    before, after = gradients(loss_fn, output, labels), gradients(loss_fn, other, others)
    assert not torch.allclose(before[rest], after[rest])
    mine = RecordLoss(loss_fn, mean=True)
    before, after = gradients(mine, output, labels), gradients(mine, other, others)
    assert before.isfinite().all()
    assert torch.equal(before[rest], after[rest])


def test_a_loss_that_cannot_be_mapped_goes_record_by_record():
    def loss_fn(output, labels):
        return output.sum() if labels.item() else 2 * output.sum()

    output, labels = torch.randn(RECORDS, 2), torch.tensor([0, 1, 0, 1, 1, 0])
    grads = gradients(RecordLoss(loss_fn, mean=False), output, labels)
    assert torch.equal(grads[:, 0], torch.tensor([2.0, 1.0, 2.0, 1.0, 1.0, 2.0]))


def test_a_wrong_number_of_labels_is_an_error():
    loss = RecordLoss(nn.CrossEntropyLoss(), mean=True)
    with pytest.raises((RuntimeError, ValueError, IndexError)):
        loss(torch.randn(RECORDS, 3), torch.zeros(RECORDS - 1, dtype=torch.long))


@pytest.mark.parametrize("shape", [(1, RECORDS), (3, RECORDS), (2, 1, RECORDS)])
def test_records_in_another_dimension_are_refused(shape):
    """Each record would meet the labels of all."""
    loss = RecordLoss(nn.MSELoss(), mean=True)
    with pytest.raises(ValueError, match=r"in the first dimension.*Transpose"):
        loss(torch.randn(RECORDS, 1), torch.randn(shape))
    assert loss(torch.randn(1, 1), torch.randn(1, 1)).isfinite()


@pytest.mark.filterwarnings("ignore:Using a target size")
def test_a_constant_of_any_other_shape_passes():
    loss = RecordLoss(lambda out, y, scale: ((out - y) * scale).sum(), mean=True)
    assert loss(torch.randn(RECORDS, 1), torch.randn(RECORDS, 1), torch.ones(2, 3)).isfinite()
