"""``python -m sketchbandits``: the command line, see `sketchbandits.cli.main`."""

from sketchbandits.cli.main import main

if __name__ == "__main__":
    main()
