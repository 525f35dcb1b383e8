"""What `sketchbandits reproduce` and `sketchbandits simulate` do, from runs to verdicts.

    scenes, policies → runs → pool → study → tables, figures, claims → report

`paper` holds the paper's data sets, `reproduce` and `own_case` say what is played, `runs` keeps it, `pool` plays it.
"""
