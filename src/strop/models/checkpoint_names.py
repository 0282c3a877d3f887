"""The names and layouts that a published checkpoint uses, where they differ from the model's own.

transformers 5 holds some weights in another layout than the checkpoint does (packed experts, for one) and
keeps the mapping with the model. This is the only file that calls that mapping.
"""

import torch
from transformers import PreTrainedModel
from transformers.core_model_loading import revert_weight_conversion


def to_checkpoint_names(hf_model: PreTrainedModel, weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Returns the weights under the names and in the layout of the model's published checkpoint.

    All parts of a fused tensor must be in `weights`: whole layers are.
    """
    converted: dict[str, torch.Tensor] = revert_weight_conversion(hf_model, weights)
    return converted


def forget_source_names(hf_model: PreTrainedModel) -> None:
    """Makes a model read from a foreign format (GGUF) export under the names that its family publishes."""
    vars(hf_model).pop("_weight_conversions", None)
