"""`python -m benchmax.platform.daemon`: what `benchmax up` starts."""

import sys

from benchmax.platform.daemon.daemon import main

sys.exit(main())
