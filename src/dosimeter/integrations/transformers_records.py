# SPDX-License-Identifier: Apache-2.0
"""Records of transformers one by one: the loss of each, and its logits for a signal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Numbered:
    """The records of a dataset as pairs of their number and their label."""

    def __init__(self, data: Any) -> None:
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, number: int) -> tuple[int, Any]:
        record = self._data[number]
        return number, record["labels"] if "labels" in record else record["label"]


class Logits(nn.Module):
    """A model that is given numbers of records, and collates and reads these."""

    def __init__(self, model: nn.Module, data: Any, collate: Any, device: torch.device) -> None:
        super().__init__()
        self.model, self._data, self._collate, self._device = model, data, collate, device

    def forward(self, numbers: Tensor) -> Tensor:
        """The logits of these records."""
        inputs = self._collate([self._data[number] for number in numbers.tolist()])
        kept = {k: v.to(self._device) for k, v in inputs.items() if k not in ("labels", "label")}
        logits: Tensor = self.model(**kept)["logits"]
        return logits


def loss_for(model: nn.Module, smoothing: float = 0.0) -> Callable[[Tensor, Tensor], Tensor]:
    """The loss of one record, as the model would compute it for a batch of one.

    Args:
        model: A model of transformers or PEFT, which says what it is for.
        smoothing: How much of each label is given to the others.
    """
    whole: Any = model
    inner = whole.get_base_model() if hasattr(whole, "get_base_model") else whole
    causal = type(inner).__name__.endswith(("ForCausalLM", "LMHeadModel"))
    kind = getattr(inner.config, "problem_type", None)

    def loss(logits: Tensor, labels: Tensor) -> Tensor:
        if kind == "regression" or (labels.is_floating_point() and kind is None):
            return F.mse_loss(logits.reshape(labels.shape), labels)
        if kind == "multi_label_classification":
            return F.binary_cross_entropy_with_logits(logits, labels)
        if causal:
            logits, labels = logits[:, :-1], labels[:, 1:]
        each = F.cross_entropy(
            logits.flatten(0, -2), labels.flatten(), reduction="none", label_smoothing=smoothing
        )
        return each.sum() / (labels != -100).sum().clamp(min=1)

    return loss
