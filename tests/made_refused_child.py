"""A child process in a sandbox that does not let it lower its priority."""

import os

from made_child import answer

from sketchbandits.service.children import serve_parent


def refuse(increment):
    raise PermissionError(1, "Operation not permitted")


if __name__ == "__main__":
    os.nice = refuse
    serve_parent(answer)
