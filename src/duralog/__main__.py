"""`python -m duralog` is the `duralog` command."""

from duralog.command_line import main

if __name__ == "__main__":
    main()
