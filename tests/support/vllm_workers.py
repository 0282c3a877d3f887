"""Workers of vLLM that receive weights wrongly, each in a way that a plausible implementation does."""

import torch
from vllm.config import set_current_vllm_config
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload

from strop.rollout.vllm.held import held_weights
from strop.rollout.vllm.worker import WeightReceiver, _checksum, _Reception


class BreakableReceiver(WeightReceiver):
    """Receives as told, and never looks whether products use what arrived.

    naive: `model.load_weights`, as is right on a GPU
    reload: vLLM's own reload, which packs linear layers anew, and no tied head
    reload, looked at: the same, with our look at what products use
    nothing: takes every weight and leaves the model as it is
    """

    strop_fault: str | None = None

    def strop_break(self, fault: str | None) -> None:
        self.strop_fault = fault

    def strop_begin_weights(self) -> None:
        if self.strop_fault in (None, "reload", "reload, looked at"):
            super().strop_begin_weights()
        else:
            self.strop_reception = _Reception(held_weights(self.model_runner.get_model()))

    def strop_load_weights(self, path: str, entries: list[tuple[str, str, list[int], int]]) -> None:
        if self.strop_fault == "nothing":
            with torch.no_grad():
                saved = self.model_runner.get_model().load_weights
                self.model_runner.get_model().load_weights = lambda weights: set()
                super().strop_load_weights(path, entries)
                self.model_runner.get_model().load_weights = saved
        else:
            super().strop_load_weights(path, entries)

    def strop_finish_weights(self) -> dict[str, float]:
        if self.strop_fault is None:
            return super().strop_finish_weights()
        if self.strop_fault in ("reload", "reload, looked at"):
            with set_current_vllm_config(self.vllm_config), torch.no_grad():
                finalize_layerwise_reload(self.model_runner.get_model(), self.model_config)
        reception, self.strop_reception = self.strop_reception, None
        assert reception is not None
        if self.strop_fault == "reload, looked at":
            return {name: _checksum(reception.held[name], arrival) for name, arrival in reception.arrivals.items()}
        return {name: arrival.checksum for name, arrival in reception.arrivals.items()}
