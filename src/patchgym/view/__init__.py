"""Runs as one looks at them: a local web page, one self-contained page, figures for a table.

::

    opened     a run under a name, its index kept up to date
    index      the index: one row a trajectory, made from the run's files
    figures    what the attempts come to, phase by phase
    pages      from an address to a template's values
    app        the pages as an ASGI application, and what guards them
    serving    on the loopback, until Ctrl-C
    static     one page that needs nothing else

Run directories are only read. What an agent, a task or a log wrote is shown and never acts.
"""
