"""AdamW over the trained parameters: decay on matrices only, float32 master weights where they are needed.

Parameters in bfloat16 have 8 bits of mantissa: an update of relative size 1e-3 or less would round to
nothing, and learning rates of reinforcement learning are far below. Such parameters get a float32 copy that
the optimizer updates and that is rounded into the parameter afterwards (4 bytes a parameter more).
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from strop.config.training import TrainingConfig
from strop.training.fsdp2.sharding import local_part, sum_over_shards


class ParameterOptimizer:
    """Owns the optimizer state of the trained parameters, by name."""

    def __init__(self, parameters: Mapping[str, nn.Parameter], config: TrainingConfig) -> None:
        if not parameters:
            raise ValueError("the model must have a parameter that requires a gradient, got none")
        self.parameters = dict(parameters)
        self.masters = {name: _master(parameter) for name, parameter in self.parameters.items()}
        matrices = [master for master in self.masters.values() if master.ndim >= 2]
        others = [master for master in self.masters.values() if master.ndim < 2]
        groups: list[dict[str, Any]] = [{"params": matrices}, {"params": others, "weight_decay": 0.0}]
        self.adamw = torch.optim.AdamW(
            [group for group in groups if group["params"]],
            lr=config.learning_rate,
            betas=(config.beta1, config.beta2),
            eps=config.epsilon,
            weight_decay=config.weight_decay,
            fused=True,
        )

    def gradient_norm(self) -> float:
        """Returns the global norm of the gradient over all processes; not finite where any part is not."""
        gradients = [parameter.grad for parameter in self.parameters.values() if parameter.grad is not None]
        if not gradients:
            return 0.0
        squares = torch.stack([_sum_of_squares(local_part(gradient)) for gradient in gradients]).sum()
        return float(sum_over_shards(squares, gradients[0]).sqrt())

    def step(self, learning_rate: float, gradient_scale: float) -> None:
        """Multiplies the gradient by `gradient_scale` and applies it."""
        for group in self.adamw.param_groups:
            group["lr"] = learning_rate
        gradients = [parameter.grad for parameter in self.parameters.values() if parameter.grad is not None]
        if gradient_scale != 1.0:
            torch._foreach_mul_(gradients, gradient_scale)
        copies = {name: master for name, master in self.masters.items() if master is not self.parameters[name]}
        for name, master in copies.items():
            gradient = self.parameters[name].grad
            master.grad = None if gradient is None else gradient.to(master.dtype)
            self.parameters[name].grad = None
        self.adamw.step()
        with torch.no_grad():
            for name, master in copies.items():
                self.parameters[name].copy_(master)

    def clear_gradients(self) -> None:
        """Frees all gradients."""
        for name, parameter in self.parameters.items():
            parameter.grad = None
            self.masters[name].grad = None

    def state_tensors(self) -> dict[str, dict[str, Tensor]]:
        """Returns the optimizer's state by kind, then by parameter name: moments, step counts, master weights."""
        state: dict[str, dict[str, Tensor]] = {}
        for name, master in self.masters.items():
            for kind, value in self.adamw.state.get(master, {}).items():
                state.setdefault(kind, {})[name] = value
            if master is not self.parameters[name]:
                state.setdefault("master", {})[name] = master
        return state

    def load_state_tensors(self, state: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Takes what `state_tensors` gave: each tensor placed as its parameter is."""
        self.adamw.state.clear()
        for kind, values in state.items():
            for name, value in values.items():
                if kind == "master":
                    self.masters[name].data.copy_(value)
                else:
                    self.adamw.state[self.masters[name]][kind] = value

    def relocate(self, place: Callable[[Tensor], Tensor]) -> None:
        """Puts moments and master weights where `place` puts them; parameters move with their module."""
        for name, master in self.masters.items():
            for kind, value in self.adamw.state.get(master, {}).items():
                self.adamw.state[master][kind] = place(value)
            if master is not self.parameters[name]:
                moved = place(master.detach()).requires_grad_()
                # `.data` of a sharded tensor would leave its shard behind.
                torch.utils.swap_tensors(master, moved)  # type: ignore[no-untyped-call]


def _sum_of_squares(values: Tensor) -> Tensor:
    """Sums row by row first: on a CPU, a norm of 28 million elements in float32 at once is off by a thousandth."""
    wide = torch.float64 if values.device.type == "cpu" else torch.float32
    rows = values if values.ndim > 1 else values[None]
    narrow = torch.promote_types(values.dtype, torch.float32)
    norms: Tensor = torch.linalg.vector_norm(rows, dim=-1, dtype=narrow)
    return norms.to(wide).square().sum()


def _master(parameter: nn.Parameter) -> Tensor:
    """Returns the parameter itself, or a float32 copy where it has less precision."""
    if parameter.dtype in (torch.float32, torch.float64):
        return parameter
    return parameter.detach().to(torch.float32).requires_grad_()
