# SPDX-License-Identifier: Apache-2.0
"""LSTM, GRU and plain recurrent layers, packed sequences included.

The input map of all steps is one linear map on a sequence. The hidden map is followed step by
step with a weight that has no gradient; what reaches it is caught at a tensor of zeros that is
added, and is the backpropagated gradient of a second linear map on a sequence. Packed rows are
put back into the order of the batch first, and out of it last.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional

from dosimeter.training.onepass.rules.linear import linear
from dosimeter.training.onepass.use import Use, exactly, run

if TYPE_CHECKING:
    from dosimeter.training.onepass.recorder import Recorder

State = tuple[Tensor, ...]
Cell = Callable[[Tensor, Tensor, State], State]


def lstm_cell(x: Tensor, h: Tensor, state: State) -> State:
    """One step of an LSTM, from both maps and the state before."""
    i, f, g, o = (x + h).chunk(4, dim=1)
    c = f.sigmoid() * state[1] + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def gru_cell(x: Tensor, h: Tensor, state: State) -> State:
    """One step of a GRU."""
    (xr, xz, xn), (hr, hz, hn) = x.chunk(3, dim=1), h.chunk(3, dim=1)
    z = (xz + hz).sigmoid()
    n = (xn + (xr + hr).sigmoid() * hn).tanh()
    return (n + z * (state[0] - n),)


def tanh_cell(x: Tensor, h: Tensor, _: State) -> State:
    """One step of a plain recurrent layer."""
    return ((x + h).tanh(),)


def relu_cell(x: Tensor, h: Tensor, _: State) -> State:
    """One step of a plain recurrent layer with rectified units."""
    return ((x + h).relu(),)


def recur(cell: Cell, recorder: Recorder, *args: Any) -> Any:
    """The rule for `torch.lstm`, `torch.gru`, `torch.rnn_tanh` and `torch.rnn_relu`."""
    packed = isinstance(args[3], list | tuple)
    given, weights = args[2 if packed else 1], args[3 if packed else 2]
    biases, layers, dropout, training, two_ways = args[4:9] if packed else args[3:8]
    state = (given,) if isinstance(given, Tensor) else tuple(given)
    per_layer = 4 if biases else 2
    odd = len(weights) != per_layer * layers * (1 + two_ways)
    if odd or not recorder.known(*weights):
        return NotImplemented
    if packed:
        batch = _Packed(args[0], args[1], recorder.order)
        if batch.records != recorder.records:
            return NotImplemented
        x, mask, state = batch.rows(), batch.mask(), tuple(batch.by_record(s) for s in state)
    else:
        x, mask = args[0] if args[8] else args[0].transpose(0, 1), None
        if not recorder.by_record(x):
            return NotImplemented
    groups = [weights[i : i + per_layer] for i in range(0, len(weights), per_layer)]
    ends: list[State] = []
    for layer in range(layers):
        outputs = []
        for way in range(1 + two_ways):
            place = layer * (1 + two_ways) + way
            first = tuple(s[place] for s in state)
            out, last = _layer(recorder, cell, x, mask, first, groups[place], backwards=way == 1)
            outputs.append(out)
            ends.append(last)
        x = torch.cat(outputs, dim=2) if two_ways else outputs[0]
        if layer < layers - 1:
            x = functional.dropout(x, dropout, training)
    final = [torch.stack(parts) for parts in zip(*ends, strict=True)]
    if packed:
        return (batch.packed(x), *(batch.as_packed(s) for s in final))
    return (x if args[8] else x.transpose(0, 1), *final)


def _layer(
    recorder: Recorder,
    cell: Cell,
    x: Tensor,
    mask: Tensor | None,
    state: State,
    weights: list[Tensor],
    *,
    backwards: bool,
) -> tuple[Tensor, State]:
    """All steps of one layer in one direction: its outputs and its last state."""
    b_in, b_hidden = weights[2:] if len(weights) == 4 else (None, None)
    inner, bias = recorder.plain(weights[1], b_hidden)
    mapped = linear(recorder, x, weights[0], b_in) if _tracked(recorder, weights[0], b_in) else (
        functional.linear(x, weights[0], b_in))  # fmt: skip
    hidden: list[Tensor] = []
    caught = run(
        _Caught,
        recorder.anchor,
        torch.zeros_like(mapped),
        hidden,
        recorder.use(weights[1], b_hidden),
    )
    outputs: list[Tensor] = []
    steps = range(x.shape[1])
    for step in reversed(steps) if backwards else steps:
        hidden.append(state[0].detach())
        h = functional.linear(state[0], inner, bias) + caught[:, step]
        new = cell(mapped[:, step], h, state)
        if mask is not None:
            here = mask[:, step].unsqueeze(1)
            new = tuple(torch.where(here, n, s) for n, s in zip(new, state, strict=True))
        state = new
        outputs.append(state[0])
    if backwards:
        outputs.reverse()
        hidden.reverse()
    return torch.stack(outputs, dim=1), state


def _tracked(recorder: Recorder, *weights: Tensor | None) -> bool:
    return any(recorder.tracks(weight) for weight in weights)


class _Caught(Function):
    """Zeros to add to the hidden map, whose gradient is written down."""

    @staticmethod
    def forward(ctx: Any, _: Tensor, zeros: Tensor, hidden: list[Tensor], use: Use) -> Tensor:
        ctx.hidden, ctx.use = hidden, use
        return zeros.clone()

    @staticmethod
    @exactly
    def backward(ctx: Any, backprops: Tensor) -> tuple[Tensor | None, ...]:
        ctx.use.begin()
        ctx.use.add_linear(torch.stack(ctx.hidden, dim=1), backprops)
        return None, None, None, None


class _Packed:
    """The rows of a packed sequence, and where they lie in the batch."""

    def __init__(self, data: Tensor, batch_sizes: Tensor, order: Tensor | None) -> None:
        self._data, self._order = data, order
        sizes = batch_sizes.tolist()
        self.records, self._steps = sizes[0], len(sizes)
        place = torch.arange(self.records, device=data.device) if order is None else order
        self._record = torch.cat([place[:size] for size in sizes])
        self._step = torch.repeat_interleave(
            torch.arange(len(sizes), device=data.device), batch_sizes.to(data.device)
        )
        self._place = place

    def rows(self) -> Tensor:
        """Records, steps, features, with zeros after the end of each sequence."""
        shape = (self.records, self._steps, self._data.shape[1])
        return self._data.new_zeros(shape).index_put((self._record, self._step), self._data)

    def mask(self) -> Tensor:
        """Which steps each record has."""
        mask = torch.zeros(self.records, self._steps, dtype=torch.bool, device=self._data.device)
        mask[self._record, self._step] = True
        return mask

    def packed(self, rows: Tensor) -> Tensor:
        """The rows of a padded tensor, packed again."""
        return rows[self._record, self._step]

    def by_record(self, state: Tensor) -> Tensor:
        """A state in the order of the batch."""
        return state if self._order is None else state[:, self._order.argsort()]

    def as_packed(self, state: Tensor) -> Tensor:
        """A state in the order of the packed rows."""
        return state if self._order is None else state[:, self._order]
