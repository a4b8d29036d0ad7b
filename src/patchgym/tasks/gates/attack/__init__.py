"""The attack on a workspace, run inside its sandbox with nothing but the standard library (Python 3.7 or later).

::

    __main__.py   reads the secrets from standard input, searches, reports
    secrets.py    what is searched for, and how a text is searched
    walk.py       which files an agent can read
    archives.py   what lies inside zip and tar files
    history.py    git repositories, packs and bundles; gitobjects.py reads their objects
    leftovers.py  compiled files, results of earlier runs, package metadata
    reach.py      networks, proxies and sockets

It is mounted as a folder of its own and never imported by the rest of patchgym.
"""
