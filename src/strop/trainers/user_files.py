"""Files of the user's that a run file names: a run that goes on says which of them have another text than before."""

import json

from strop.config.bundles import resolve_algorithm
from strop.config.root import Config
from strop.tasks.load_function import source_digest
from strop.trainers.run_folder import RunFolder, write_whole


def write_digests(config: Config, folder: RunFolder) -> None:
    """Stores a digest of each file."""
    write_whole(folder.user_files, json.dumps(_digests(config), indent=1))


def changed_files(config: Config, folder: RunFolder) -> list[str]:
    """The functions in whose files something has changed since `write_digests`; new ones are no change."""
    if not folder.user_files.exists():
        return []
    before = json.loads(folder.user_files.read_text(encoding="utf-8"))
    return [name for name, digest in _digests(config).items() if before.get(name, digest) != digest]


def _digests(config: Config) -> dict[str, str | None]:
    """The digests by function; one of a module, which is no file of the run file's, has none."""
    algorithm = resolve_algorithm(config.algorithm, config.rollout.max_new_tokens)
    named = [*(reward.function for reward in config.rewards), algorithm.loss, algorithm.advantage]
    return {name: source_digest(name) for name in named if name is not None and ":" in name}
