"""The files of `sketchbandits inspect --out`."""

import io
import json

from sketchbandits.lab.advice.advisor import Advice
from sketchbandits.lab.outputs import PNG_DPI


def advice_files(advice: Advice) -> dict[str, bytes]:
    """``advice.txt``, ``advice.json`` and ``advice.png``."""
    image = io.BytesIO()
    advice.plot().savefig(image, format="png", dpi=PNG_DPI)
    numbers = json.dumps(advice.as_json(), indent=2, allow_nan=False)
    return {"advice.txt": advice.text().encode(), "advice.json": numbers.encode(), "advice.png": image.getvalue()}
