"""``python -m sketchbandits``: the command line, see `sketchbandits.cli`."""

from sketchbandits.cli import main

if __name__ == "__main__":
    main()
