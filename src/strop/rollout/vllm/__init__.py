"""Sampling with vLLM. Nothing here imports vLLM before an engine is built: `strop.rollout.vllm.build` does that."""
