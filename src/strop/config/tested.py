"""The versions that strop is tested with, and those that it accepts; `strop doctor` reads this."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PackageRange:
    """One package: `tested` is the version that the tests run with, `accepted` what may be installed."""

    name: str
    tested: str
    accepted: str
    extra: str | None = None
    """The extra of strop that brings the package; None where strop cannot run without it."""
    purpose: str = ""


PYTHON_ACCEPTED = ">=3.11"

PACKAGES = (
    PackageRange("torch", "2.13.0", ">=2.13"),
    PackageRange("transformers", "5.19.0", ">=5.19,<5.20"),
    PackageRange("pydantic", "2.14.4", ">=2.11"),
    PackageRange("typer", "0.29.2", ">=0.20"),
    PackageRange("rich", "15.0.0", ">=14"),
    PackageRange("numpy", "2.4.6", ">=2.0"),
    PackageRange("safetensors", "0.8.0", ">=0.6"),
    PackageRange("jinja2", "3.1.6", ">=3.1"),
    PackageRange("regex", "2026.11.19", ">=2025.10.22"),
    PackageRange("gguf", "0.19.0", ">=0.17", "gguf", "GGUF files and the demo model"),
    PackageRange("accelerate", "1.15.0", ">=1.10", "gguf", "GGUF files and the demo model"),
    PackageRange("peft", "0.21.2", ">=0.20", "lora", "LoRA"),
    PackageRange("datasets", "5.2.0", ">=4.0", "data", "Hugging Face data sets"),
    PackageRange("pyarrow", "26.0.1", ">=20", "parquet", "Parquet files"),
    PackageRange("reasoning-gym", "0.1.25", ">=0.1.25", "reasoning-gym", "reasoning_gym tasks"),
    PackageRange("httpx2", "2.16.2", ">=2.0", "judge", "judges behind a server"),
    PackageRange("ray", "2.60.0", ">=2.50", "ray", "clusters"),
    PackageRange("jsonschema", "4.26.0", ">=4.25", "graders", "the grader json_schema"),
    PackageRange("math-verify", "0.9.0", ">=0.9", "graders", "the grader math_verify"),
    PackageRange("tensorboard", "2.21.0", ">=2.19", "tensorboard", "the sink tensorboard"),
    PackageRange("wandb", "0.31.0", ">=0.20", "wandb", "the sink wandb"),
    PackageRange("trackio", "0.43.0", ">=0.40", "trackio", "the sink trackio"),
    PackageRange("mlflow-skinny", "3.17.2", ">=3.0", "mlflow", "the sink mlflow"),
)
