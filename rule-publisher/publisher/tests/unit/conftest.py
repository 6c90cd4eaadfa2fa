"""Import path of the modules that several unit tests share."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
