"""One palette: policies differ in colour, variants of a policy in their lines, and names can be read on white."""

import re

import numpy as np
from matplotlib.colors import to_rgb

from sketchbandits.lab import drawing, palette
from sketchbandits.policies.registry import POLICIES, parse_policies


def test_variants_of_a_policy_share_its_colour_and_no_line():
    variants = parse_policies(
        "cslb,cslb:sketch_size=2,cslb:sketch_size=3,cslb:sketch_size=4,soful,soful:shrink=every-round,oful"
    )
    found = palette.appearances(variants)
    assert len(set(found.values())) == len(variants)
    assert all(colour == palette.COLOURS[policy.name] for policy, (colour, _) in found.items())
    assert [found[policy][1] for policy in variants[:3]] == ["-", "--", "-."]


def test_policies_differ_in_colour_and_options_show_in_the_line():
    assert set(palette.COLOURS) == set(POLICIES) >= set(palette.LINES)
    assert len({colour.lower() for colour in palette.COLOURS.values()}) == len(POLICIES)
    assert all(re.fullmatch("#[0-9A-F]{6}", colour) for colour in palette.COLOURS.values())
    plain, own = parse_policies("soful,soful:sketch_size=8,shrink=every-round")
    assert palette.colour_of(own) == palette.colour_of(plain) == palette.COLOURS["soful"]
    assert (palette.line_of(plain), palette.line_of(own)) == ("-.", "--")
    assert "--" not in palette.LINES.values()


def test_names_are_readable_on_white():
    for colour in palette.COLOURS.values():
        rgb = np.array(to_rgb(drawing.ink(colour)))
        linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
        assert 1.05 / (linear @ (0.2126, 0.7152, 0.0722) + 0.05) >= 4.5
    assert drawing.ink("#0072B2") == "#0072b2"  # dark enough as it is
