"""``python -m seriatim``."""

import sys

from seriatim.cli import main

if __name__ == "__main__":
    sys.exit(main())
