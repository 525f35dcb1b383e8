"""Schemas of contexts and arms: what people have (records, data frames) becomes vectors.

**Flow** `frames` reads tables of any kind alike. A column (`numeric`, `categorical`, `hashed`, `embedding`) turns one
value into a few outputs of similar size; `interactions` multiplies outputs of several columns; `plan` puts all of them
into one vector. `schema` is the public class, `infer` proposes one from data, `document` is its form as JSON,
`described` its form as a table, and `values` says what counts as missing, as a number and as a text.
"""

from sketchbandits.features.categorical import Categorical
from sketchbandits.features.embedding import Embedding
from sketchbandits.features.hashed import Hashed
from sketchbandits.features.numeric import Numeric
from sketchbandits.features.schema import Features

__all__ = ["Categorical", "Embedding", "Features", "Hashed", "Numeric"]
