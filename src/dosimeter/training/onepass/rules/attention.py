# SPDX-License-Identifier: Apache-2.0
"""Multi-head attention: PyTorch's own code, with steps before records as it has them inside."""

from __future__ import annotations

from types import FunctionType
from typing import TYPE_CHECKING, Any

from torch.nn import functional

if TYPE_CHECKING:
    from dosimeter.training.onepass.recorder import Recorder

_ATTEND = functional.multi_head_attention_forward

# PyTorch's function, but its first question, whether somebody wants to take over, is answered
# with no: the linear maps inside are taken over one by one.
_INSIDE = FunctionType(
    _ATTEND.__code__,
    {**vars(functional), "has_torch_function": lambda _: False},
    argdefs=_ATTEND.__defaults__,
)


def attend(recorder: Recorder, query: Any, *args: Any, **kwargs: Any) -> Any:
    """The rule for `functional.multi_head_attention_forward`."""
    if query.dim() != 3 or query.shape[1] != recorder.records:
        return NotImplemented
    with recorder.steps_first():
        return _INSIDE(query, *args, **kwargs)
