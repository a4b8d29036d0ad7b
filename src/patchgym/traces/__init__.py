"""Other people's trajectories: read, cleaned, written.

A format is a module of ``patchgym.traces.formats``. What reads one hands events to a ``Draft``, which makes steps of
them: what a log does not say stays None, and what a trajectory cannot hold is counted, never dropped in silence.
"""
