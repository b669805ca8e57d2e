# SPDX-License-Identifier: Apache-2.0
"""Rules: for each function of PyTorch with parameters, how the gradients of records are had.

A rule takes the recorder and the arguments of the function. It gives the result, or
NotImplemented if the call is not of a kind that it knows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.nn import functional

from dosimeter.training.onepass.rules import (
    attention,
    convolution,
    embedding,
    linear,
    norms,
    recurrent,
)

Rule = Callable[..., Any]

RULES: dict[Any, Rule] = {
    functional.linear: linear.linear,
    torch.conv1d: convolution.convolve,
    torch.conv2d: convolution.convolve,
    torch.conv3d: convolution.convolve,
    functional.embedding: embedding.embed,
    functional.layer_norm: norms.layer_norm,
    functional.group_norm: norms.group_norm,
    functional.rms_norm: norms.rms_norm,
    functional.instance_norm: norms.instance_norm,
    functional.multi_head_attention_forward: attention.attend,
    torch.lstm: partial(recurrent.recur, recurrent.lstm_cell),
    torch.gru: partial(recurrent.recur, recurrent.gru_cell),
    torch.rnn_tanh: partial(recurrent.recur, recurrent.tanh_cell),
    torch.rnn_relu: partial(recurrent.recur, recurrent.relu_cell),
}

__all__ = ["RULES"]
