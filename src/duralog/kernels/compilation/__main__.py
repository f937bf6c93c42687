import sys

from duralog.kernels.compilation.building import main

sys.exit(main(sys.argv[1:]))
