"""Other people's task formats, read and written.

::

    refused.py       what cannot be imported or exported, by name; fields of foreign rows
    reading.py       rows out of JSONL, JSON and Parquet
    columns.py       rows both ways: what a task holds, and what is kept beside it
    folders.py       task folders both ways: the same
    benchmark.py     a task out of what a benchmark says
    clones.py        a commit's files out of local git clones
    reverse.py       a patch turned round
    swebench.py      SWE-bench rows                         swebench5.py   SWE-bench 5 task repositories
    swesmith.py      SWE-smith rows                         harbor.py      Harbor task directories
    r2egym.py        R2E-Gym rows (r2ecommit.py: the commit in them)
    image.py, harborscripts.py, grade.py   what an exported folder is built and graded with
    importing.py     a file or folder as tasks              exporting.py   tasks as a file or folder

A format module has two pure functions, ``from_row`` and ``to_row`` (or ``from_files`` and ``to_files``). What a row
holds beyond a task's own fields goes into ``Task.foreign``, so that importing and exporting gives the same row again.
"""

FORMATS = ("swe-bench", "swe-bench-5", "swe-smith", "r2e-gym", "harbor")
"""The formats' names on the command line."""
