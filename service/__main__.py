"""``python -m service`` is ``gpu-extender``."""

import sys

from service.commands.cli import main

if __name__ == "__main__":
    sys.exit(main())
