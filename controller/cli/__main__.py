"""`python -m controller.cli`: the command line where no script is installed."""

from controller.cli import main

if __name__ == "__main__":
    main()
