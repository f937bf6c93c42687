"""`python -m duralog` is the `duralog` command."""

from duralog.cli.main import main

if __name__ == "__main__":
    main()
