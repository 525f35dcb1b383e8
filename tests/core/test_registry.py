"""Policies by name: what is parsed, what is refused and what each policy is built with."""

import inspect
import re

import numpy as np
import pytest
from catalogue import public_policies
from hypothesis import given, settings
from hypothesis import strategies as st

from sketchbandits import CSLB, UCB1, HybridCSLB, Partition
from sketchbandits.policies.registry import POLICIES, PolicySpec, parse_policies

ARMS = np.random.default_rng(0).standard_normal((11, 6))


def options_of(kind):
    """The keywords of a policy's class, written down by its own signature, but for those that only Python can give."""
    known = POLICIES[kind]
    return sorted(set(inspect.signature(known.policy).parameters) - {"arms", "seed", *known.only_in_python})


def typed(spec):
    """A policy with the types of its values: 1, 1.0 and True are equal in Python."""
    return spec.name, [(name, type(value), value) for name, value in spec.options]


# --- reading ---


@pytest.mark.parametrize(
    ("text", "kind", "options"),
    [
        ("cslb", "cslb", {}),
        ("CS-LB", "cslb", {}),
        ("cs_lb", "cslb", {}),
        (" Cs Lb ", "cslb", {}),
        ("DBSLinUCB", "dbslinucb", {}),
        ("cslb:sketch_size=8,radius=logdet", "cslb", {"radius": "logdet", "sketch_size": 8}),
        ("CS-LB: sketch_size = 8 , radius = logdet ", "cslb", {"radius": "logdet", "sketch_size": 8}),
        ("soful:shrink=every-round", "soful", {"shrink": "every-round"}),
        ("oful:switching=none,ridge=1e-3", "oful", {"ridge": 1e-3, "switching": None}),
        ("dbslinucb:compensated=true,error=2.50", "dbslinucb", {"compensated": True, "error": 2.5}),
        ("dbslinucb:compensated=FALSE,error=2", "dbslinucb", {"compensated": False, "error": 2}),
        ("ucb1:exploration=-3", "ucb1", {"exploration": -3}),
        (
            "hybrid:noise=0.5,half_life=auto,explore=ucb",
            "hybrid",
            {"explore": "ucb", "half_life": "auto", "noise": 0.5},
        ),
    ],
)
def test_one_policy(text, kind, options):
    assert typed(PolicySpec.parse(text)) == typed(PolicySpec(kind, tuple(sorted(options.items()))))


def test_options_are_kept_in_order_of_their_names():
    one, two = (PolicySpec.parse(f"cslb:{text}") for text in ("ridge=2,delta=0.5", "delta=0.5,ridge=2"))
    assert one == two and hash(one) == hash(two)
    assert [name for name, _ in one.options] == ["delta", "ridge"]


def test_a_piece_with_an_equals_sign_belongs_to_the_policy_before():
    text = "cslb:sketch_size=8,radius=logdet,oful,soful:ridge=0.5,shrink=every-round,CS-LB"
    assert [str(policy) for policy in parse_policies(text)] == [
        "cslb:radius=logdet,sketch_size=8", "oful", "soful:ridge=0.5,shrink=every-round", "cslb",
    ]  # fmt: skip


def test_the_order_given_is_kept():
    assert [policy.name for policy in parse_policies("ucb1, oful ,cslb")] == ["ucb1", "oful", "cslb"]


def test_all_is_one_of_each_kind_or_of_those_wanted():
    assert parse_policies(" all ") == tuple(PolicySpec(kind) for kind in POLICIES)
    assert parse_policies("all", every=("ucb1", "cslb")) == (PolicySpec("ucb1"), PolicySpec("cslb"))


def test_one_kind_with_other_options_is_another_policy():
    assert len(parse_policies("cslb,cslb:ridge=2,cslb:ridge=3")) == 3


@pytest.mark.parametrize(
    "text",
    ["cslb,cslb", "cslb,oful,CS-LB", "oful:ridge=2,oful:ridge=2", "cslb:ridge=2,delta=0.5,cslb:delta=0.5,ridge=2"],
)
def test_policies_named_twice_are_refused(text):
    with pytest.raises(ValueError, match=f"^policies must be named once each, got {re.escape(repr(text))}$"):
        parse_policies(text)


@pytest.mark.parametrize(
    "text", ["greedy", "", "cslb,,oful", "cslb,greedy:ridge=1", "cslb oful", "all,cslb", "cslb;oful"]
)
def test_an_unknown_policy_is_named_with_those_allowed(text):
    with pytest.raises(ValueError, match=r"^policies must be some of ") as caught:
        parse_policies(text)
    message = str(caught.value)
    assert all(kind in message for kind in POLICIES)
    assert "(or all)" in message
    bad = next(name for name in (re.split("[:=]", piece)[0] for piece in text.split(",")) if name not in POLICIES)
    assert message.endswith(f"got {bad!r}")


@pytest.mark.parametrize(
    "text",
    [
        "ucb1:ridge=2",  # it has none
        "cslb:seed=3",  # the experiment's
        "cslb:arms=3",
        "cslb:sketch_size",
        "cslb:",
        "cslb:=3",
        "cslb:Ridge=2",
        "oful:ridge=1,sketch_size=3",
    ],
)
def test_an_unknown_option_is_refused_with_those_allowed(text):
    with pytest.raises(ValueError, match=r"^policies must be name:option=value") as caught:
        parse_policies(text)
    message = str(caught.value)
    assert message.endswith(f"got {text!r}")
    allowed = re.search(r"options of (\w+): ([\w, ]+);", message)
    assert allowed[1] == text.split(":")[0]
    assert sorted(allowed[2].split(", ")) == options_of(allowed[1])


@pytest.mark.parametrize("option", ["context_dim", "feature_dim", "max_arms", "context_features", "arm_features"])
def test_what_only_python_can_give_is_refused_with_a_sentence(option):
    rule = rf"must leave out {option}, which is for HybridCSLB\(...\) in Python only, got it$"
    with pytest.raises(ValueError, match=f"^policies {rule}"):
        parse_policies(f"oful,hybrid:noise=1,{option}=5")
    with pytest.raises(ValueError, match=f"^options {rule}"):
        PolicySpec.of("hybrid", {option: 5})


@pytest.mark.parametrize("value", ["6h", " 2 w"])
def test_a_half_life_in_time_is_refused_where_no_time_comes_with_rewards(value):
    with pytest.raises(ValueError, match=rf"^half_life must be a whole number of rewards or auto: .*got '{value}'$"):
        PolicySpec.of("hybrid", {"half_life": value}).build(ARMS, {}, 0)


def test_an_option_given_twice_is_refused():
    with pytest.raises(ValueError, match=r"^policies must .*ridge"):
        parse_policies("cslb:ridge=1,delta=0.5,ridge=2")


# --- writing and reading again ---

WORDS = st.text("abcdefghijklmnopqrstuvwxyz-_.0123456789", max_size=9).map(lambda text: f"x{text}")
VALUES = st.one_of(st.integers(), st.floats(allow_nan=False), st.booleans(), st.none(), WORDS)


@st.composite
def specs(draw):
    kind = draw(st.sampled_from(list(POLICIES)))
    names = draw(st.lists(st.sampled_from(options_of(kind)), unique=True))
    return PolicySpec(kind, tuple((name, draw(VALUES)) for name in sorted(names)))


@settings(deadline=None)
@given(specs())
def test_the_text_of_a_policy_reads_as_the_same_policy(spec):
    again = PolicySpec.parse(str(spec))
    assert typed(again) == typed(spec)
    assert str(again) == str(spec)


@settings(deadline=None)
@given(st.lists(specs(), min_size=1, max_size=4, unique=True))
def test_the_text_of_many_policies_reads_as_the_same_policies(many):
    assert list(map(typed, parse_policies(",".join(map(str, many))))) == list(map(typed, many))


# --- names ---


def test_every_public_policy_is_registered():
    assert {known.policy for known in POLICIES.values()} == public_policies()
    assert len(POLICIES) == len(public_policies())


def test_labels_differ_and_can_be_parsed():
    assert len({known.label for known in POLICIES.values()}) == len(POLICIES)
    assert all(PolicySpec.parse(known.label) == PolicySpec(name) for name, known in POLICIES.items())


def test_a_label_shows_the_options():
    plain, own = parse_policies("soful,soful:sketch_size=8,shrink=every-round")
    assert plain.label == "SOFUL"
    assert own.label == "SOFUL (shrink every-round, sketch size 8)"


# --- building ---


def test_a_policy_takes_the_parameters_that_it_has():
    parameters = {"sketch_size": 3, "noise": 0.25, "ridge": 2.0, "delta": 0.125, "theta_norm": 3.0, "arm_norm": 9.0}
    assert PolicySpec("ucb1").build(ARMS, parameters, 0).settings == UCB1(ARMS, noise=0.25).settings
    cslb = PolicySpec("cslb").build(ARMS, parameters, 0)
    assert type(cslb) is CSLB
    assert cslb.settings == CSLB(ARMS, **parameters).settings


def test_the_hybrid_policy_learns_what_an_experiment_would_tell_it():
    parameters = {"sketch_size": 3, "noise": 0.25, "ridge": 2.0, "delta": 0.125, "theta_norm": 3.0, "arm_norm": 9.0}
    assert PolicySpec("hybrid").build(ARMS, parameters, 0).settings == HybridCSLB(ARMS).settings
    own = PolicySpec.parse("hybrid:noise=0.5,sketch_size=2").build(ARMS, parameters, 0).settings
    assert own == HybridCSLB(ARMS, noise=0.5, sketch_size=2).settings


def test_own_options_come_before_the_experiments():
    spec = PolicySpec.parse("cslb:sketch_size=2,ridge=0.5")
    settings = spec.build(ARMS, {"sketch_size": 5, "ridge": 2.0, "delta": 0.125}, 0).settings
    assert (settings["sketch_size"], settings["ridge"], settings["delta"]) == (2, 0.5, 0.125)


@pytest.mark.parametrize("kind", list(POLICIES))
def test_every_kind_is_built_from_the_shared_parameters(kind):
    policy = PolicySpec(kind).build(ARMS, {"sketch_size": 3, "noise": 0.5}, 0)
    assert type(policy) is POLICIES[kind].policy
    assert (policy.n_arms, policy.dim) == (11, 6)


def test_the_seed_reaches_a_policy_that_draws():
    one, again, other = (PolicySpec("lints").build(ARMS, {}, seed).state.key for seed in (1, 1, 2))
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)


def test_arms_arrive_as_they_are():
    single = PolicySpec("cslb").build(ARMS.astype(np.float32), {"sketch_size": 3}, 0)
    double = PolicySpec("cslb").build(ARMS, {"sketch_size": 3}, 0)
    assert single.partition.tolerance == Partition.first_fit(ARMS.astype(np.float32), sketch_size=3).tolerance
    assert double.partition.tolerance < single.partition.tolerance


def test_a_missing_parameter_is_named():
    with pytest.raises(
        ValueError, match=r"^policies must have all their parameters, got 'soful:ridge=2': .*sketch_size"
    ):
        PolicySpec.parse("soful:ridge=2").build(ARMS, {"noise": 0.5}, 0)
    with pytest.raises(ValueError, match=r"^sketch_size must be a whole number >= 1, got None"):
        PolicySpec.parse("cslb:ridge=2").build(ARMS, {"noise": 0.5}, 0)


@pytest.mark.parametrize("kind", list(POLICIES))
@pytest.mark.parametrize("value", ["0", "-1", "0.5", "1e300", "nan", "inf", "true", "none", "word", ""])
def test_a_value_is_taken_or_refused_by_name(kind, value):
    for option in options_of(kind):
        spec = PolicySpec.parse(f"{kind}:{option}={value}")
        refusal = ""
        try:
            spec.build(ARMS, {"sketch_size": 3}, 0)
        except ValueError as error:
            refusal = str(error)
        assert not refusal or option in refusal
        assert "all their parameters" not in refusal
