"""A user's own arms, one per row, from a ``.npy``, ``.csv`` or ``.parquet`` file.

**Flow** `tables` opens a table. `arms` takes columns of numbers as they are; `encoded` turns columns of any type into
features, by a schema that people may have from `encoded.proposed`.
"""

from sketchbandits.arms_file.arms import ArmFile, read_arms, read_npy
from sketchbandits.arms_file.encoded import SchemaFile, proposed

__all__ = ["ArmFile", "SchemaFile", "proposed", "read_arms", "read_npy"]
