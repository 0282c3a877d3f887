"""The native rollout engine: continuous batching in plain torch."""

from strop.rollout.native.engine import EngineState, NativeEngine

__all__ = ["EngineState", "NativeEngine"]
