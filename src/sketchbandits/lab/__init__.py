"""The laboratory: what `reproduce`, `beyond`, `simulate` and `inspect` do.

    experiments → growth, intervals → verdict → paper, own_case → report

`experiments` plays policies in scenes and keeps the outcomes. `verdict` judges claims about them by rules that are
declared with them, with `intervals` and `growth`. `paper` holds the experiments and claims of the CS-LB paper,
`own_case` those of a user's own arms, and `report` makes figures, tables and one page of them. `advice` stands apart:
it examines arms before anything is played. `drawing` and `palette` say how every figure looks, `outputs` and `journal`
write files.
"""
