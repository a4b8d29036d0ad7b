"""patchgym: reinforcement learning of coding agents on proved tasks, trajectories and rewards.

The package is a house of floors; each imports only from the floors below it (``pyproject.toml`` holds the contract)::

    cli                          one file a command
    diagnose                     the ordered checklist over a run directory
    train | evaluate             policy updates; held-out measurement
    tasks | rollout              where tasks come from; how episodes are collected
    grading | agent | reward     a verdict in a fresh sandbox; one episode; the value of a verdict
    testrun                      a repository's tests, run in a sandbox, outcomes by test id
    store | sandbox | policy     run directories; isolated execution; sampling of actions
    content                      content-addressed material: trees, patches, pinned downloads
    config, records, errors      settings, frozen data, one error tree

Importing the package prints nothing, creates nothing and reads no environment file.
"""

from importlib.metadata import version as _version

__version__ = _version("patchgym")
