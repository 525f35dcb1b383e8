"""A child process as the service starts them, for tests: it does what its request says."""

import os
import sys
import time

from sketchbandits.service.children import serve_parent


def answer(request):
    word, _, rest = bytes(request).partition(b" ")
    if word == b"sleep":
        time.sleep(float(rest))
    if word == b"die":
        os._exit(3)
    if word == b"half":
        yield rest[: len(rest) // 2]
        os._exit(0)
    sys.stdout.write("this is no part of the answer\n")
    yield str(os.getpid()).encode() + b"\n"
    yield rest


if __name__ == "__main__":
    serve_parent(answer)
