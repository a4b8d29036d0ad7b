"""Gates: what keeps a task out of a set, or sends it back. Each says what it found, where, and what to do.

::

    statement/      what an instruction gives away of its solution, and the instruction without it
    workspace.py    an attack on the task's own workspace, run in its sandbox by the program in attack/
    solution.py     what that attack looks for
    description.py  whether an instruction says what is wrong and where
    priority.py     the score of five rows by which tasks are sorted
    licences.py     the licence of a source tree (licences.toml); spdx.py: licence expressions and the allow-list
    findings.py     what a gate says
    audit.py        all of them over a set

Nothing is imported here: most of it takes a moment to load.
"""
