"""What runs inside a sandbox to make and to ask probes. Stands alone: only the standard library, any Python from 3.8
on, and no module of patchgym. The folder is mounted as the package ``patchgym_inside``."""
