"""The run file as frozen, typed, closed models: this package never imports torch.

base.py, root.py, <section>.py   the models; the string under a field is its documentation
schema.py                        questions about the models
overrides.py, tree.py, load.py   TOML file + `section.key=value` -> `Config`, or every problem at once
dump.py                          `Config` -> TOML
checks/                          which keys go together
bundles/                         what each named algorithm means where the file leaves a part open
describe.py                      every key, for `strop config`
tested.py                        the versions that strop is tested with
"""
