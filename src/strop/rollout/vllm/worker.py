"""What is added to vLLM's worker: it receives weights by name and says what it holds then.

    begin --> load, load, ... --> finish

`begin` puts every layer back into the form in which checkpoints are loaded; a layer is processed (on a CPU: packed)
as soon as its last weight has arrived, so that no second copy of the model exists. Plain `model.load_weights` does
neither: on a CPU it would write into parameters that no product reads. `finish` also packs the output head anew: where
it is tied to the embedding it receives no weight of its own, and vLLM's reload leaves its packed copy as it was.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from vllm.config import set_current_vllm_config
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

from strop.rollout.vllm.held import Arrival, HeldWeight, heads, held_weights, tied_names
from strop.transfer.checksum import weight_checksum


@dataclass
class _Reception:
    """One publication under way."""

    held: dict[str, HeldWeight]
    arrivals: dict[str, Arrival] = field(default_factory=dict)


class WeightReceiver:
    """Methods that `collective_rpc` calls; vLLM mixes this class into its own worker class."""

    model_runner: Any
    vllm_config: Any
    model_config: Any
    device: torch.device
    strop_reception: _Reception | None = None

    def strop_weight_table(self) -> dict[str, Any]:
        """Returns the shape of every weight by name, and the names of tied ones."""
        model = self.model_runner.get_model()
        shapes = {name: list(held.shape) for name, held in held_weights(model).items()}
        return {"shapes": shapes, "tied": tied_names(model)}

    def strop_begin_weights(self) -> None:
        """Opens a publication; one that was given up half-way is closed first."""
        if self.strop_reception is not None:
            self.strop_finish_weights()
        model = self.model_runner.get_model()
        self.strop_reception = _Reception(held_weights(model))
        with set_current_vllm_config(self.vllm_config):
            initialize_layerwise_reload(model)

    def strop_load_weights(self, path: str, entries: list[tuple[str, str, list[int], int]]) -> None:
        """Takes weights out of a shared file: name, type, shape and offset in bytes of each."""
        assert self.strop_reception is not None, "strop_begin_weights must be called first"
        reception = self.strop_reception
        shared = torch.from_numpy(np.memmap(path, dtype=np.uint8, mode="r+"))
        weights = []
        for name, dtype, shape, offset in entries:
            held = reception.held[name]
            weight = _tensor(shared, dtype, shape, offset).to(device=self.device, dtype=held.dtype, copy=True)
            reception.arrivals[name] = Arrival.of(weight, held)
            weights.append((name, weight))
        with set_current_vllm_config(self.vllm_config), torch.no_grad():
            self.model_runner.get_model().load_weights(iter(weights))

    def strop_finish_weights(self) -> dict[str, float]:
        """Closes a publication; returns the checksum of every weight that arrived, of what is held now.

        A packed copy that does not compute what arrived has the checksum NaN.
        """
        assert self.strop_reception is not None, "strop_begin_weights must be called first"
        model = self.model_runner.get_model()
        with set_current_vllm_config(self.vllm_config), torch.no_grad():
            finalize_layerwise_reload(model, self.model_config)
            for head in heads(model):
                head.quant_method.process_weights_after_loading(head)
        reception, self.strop_reception = self.strop_reception, None
        return {name: _checksum(reception.held[name], arrival) for name, arrival in reception.arrivals.items()}


def _tensor(shared: torch.Tensor, dtype: str, shape: list[int], offset: int) -> torch.Tensor:
    element: torch.dtype = getattr(torch, dtype)
    num_bytes = element.itemsize * int(np.prod(shape))
    return shared[offset : offset + num_bytes].view(element).view(shape)


def _checksum(held: HeldWeight, arrival: Arrival) -> float:
    if held.packed_in is not None and not arrival.is_computed_with(held):
        return float("nan")
    return weight_checksum(held.read()) if held.is_plain else arrival.checksum
