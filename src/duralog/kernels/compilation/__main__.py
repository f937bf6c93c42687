import os
import sys

# It chooses the code that is used, not what is made: `building` would not see that it is up to date.
os.environ.pop("DURALOG_KERNELS", None)

from duralog.kernels.compilation.building import main

sys.exit(main(sys.argv[1:]))
