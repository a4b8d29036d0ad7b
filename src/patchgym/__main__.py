"""``python -m patchgym``."""

from patchgym.cli import main

if __name__ == "__main__":
    main()
