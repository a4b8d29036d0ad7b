"""Starts the teller. The folder itself is not left on the import path: the workspace may have modules of any name."""

import os
import sys

if __name__ == "__main__":
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    from patchgym_inside.teller import main  # type: ignore[import-not-found]

    del sys.path[0]
    sys.exit(main())
