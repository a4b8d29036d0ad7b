"""What tasks have in common: duplicates, versions of one function, passages of other people's benchmarks; and splits
that keep apart what must not meet.

::

    tokens.py        text without whitespace and comments, with its names or without
    changes.py       the hunks of any patch, and what they change, token by token
    functions.py     the functions of a source file, and those that a change touches
    material.py      a task, or a benchmark's record, ready to compare
    fingerprints.py  what decides whether two of them are the same
    minhash.py       nearly equal sets among many (MinHash, LSH); groups.py joins what belongs together
    pairs.py         duplicates and versions
    split.py         training and held-out tasks, nothing on both sides; resplit.py writes a task set so
    refuse.py        a training set that overlaps a held-out one is refused
    rows.py          benchmark rows by their fields; files.py reads them
    passages.py      what is looked up; index.py where
    report.py        matching passages side by side, as a page
"""
