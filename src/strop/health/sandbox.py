"""Which levels of the sandbox hold here, for programs that the policy writes."""

from strop.health.finding import Finding, Health
from strop.tasks.sandbox.limits import SandboxLevel
from strop.tasks.sandbox.self_check import SelfCheck, check_level

_NAME = "sandbox"


def check_sandbox() -> Finding:
    """Tries to escape from either level, as a run with the grader `code` does at its start."""
    return judge_sandbox(check_level(SandboxLevel.NAMESPACES), check_level(SandboxLevel.LANDLOCK))


def judge_sandbox(*checks: SelfCheck) -> Finding:
    """Takes the checks from the strongest level down; a run takes the first that holds, and none is a warning."""
    detail = "; ".join(f"{check.level} {_state(check)}" for check in checks)
    if any(check.problem is None for check in checks):
        return Finding(_NAME, Health.OK, detail)
    remedy = "Only for the grader `code`: run on Linux with user namespaces or Landlock, or set its remote_url."
    return Finding(_NAME, Health.WARN, detail, remedy)


def _state(check: SelfCheck) -> str:
    return "holds" if check.problem is None else f"does not: {check.problem}"
