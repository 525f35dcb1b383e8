"""One way to a contextual form: the policy's own parameters, a signature for `help`, and `load` for both forms."""

import inspect

import numpy as np
import pytest
from catalogue import CONTEXTUAL

import sketchbandits
from sketchbandits import CBRAP, OFUL, SOFUL, LinTS, LinUCB, MultiscaleCSLB
from sketchbandits.policies.contextual import ContextualPolicy, ContextualRidge

OWN = [OFUL, LinUCB, LinTS, CBRAP, SOFUL, sketchbandits.CBSCFD, sketchbandits.DBSLinUCB]


@pytest.mark.parametrize("cls", OWN)
def test_the_contextual_form_has_the_parameters_of_the_class(cls):
    own, given = inspect.signature(cls).parameters, inspect.signature(cls.contextual).parameters
    assert list(given) == ["dim", *(name for name in own if name != "arms")]
    assert all(given[name].default == own[name].default for name in given if name != "dim")
    assert cls.__name__ in cls.contextual.__doc__ and cls.contextual.__qualname__ == f"{cls.__name__}.contextual"
    with pytest.raises(TypeError, match="unexpected keyword argument 'wrong'"):
        cls.contextual(dim=4, **({"sketch_size": 2} if "sketch_size" in own else {}), wrong=1)
    with pytest.raises(TypeError, match="missing a required"):
        cls.contextual()


@pytest.mark.parametrize("name", CONTEXTUAL)
def test_the_class_loads_its_contextual_form(name, tmp_path):
    policy = CONTEXTUAL[name](5)
    contexts = np.random.default_rng(0).normal(size=(6, 5))
    contexts /= np.linalg.norm(contexts, axis=1, keepdims=True)
    policy.update_many(contexts, np.arange(6.0))
    policy.save(tmp_path / "state.npz")
    loaded = getattr(sketchbandits, policy.settings["name"]).load(tmp_path / "state.npz")
    assert type(loaded) is type(policy) and loaded.settings == policy.settings
    assert np.array_equal(loaded.bounds(contexts), policy.bounds(contexts))


def test_another_class_refuses_it_and_fixed_arms_load_as_before(tmp_path):
    OFUL.contextual(dim=3).save(tmp_path / "contextual.npz")
    OFUL(np.eye(3)).save(tmp_path / "fixed.npz")
    with pytest.raises(ValueError, match="path must be a saved LinUCB, got a ContextualRidge of OFUL"):
        LinUCB.load(tmp_path / "contextual.npz")
    assert isinstance(OFUL.load(tmp_path / "fixed.npz"), OFUL)
    assert isinstance(ContextualRidge.load(tmp_path / "contextual.npz"), ContextualRidge)
    with pytest.raises(ValueError, match="path must be a saved ContextualRidge, got a OFUL"):
        ContextualRidge.load(tmp_path / "fixed.npz")


def test_settings_are_those_that_were_given():
    assert LinUCB.contextual(dim=3, alpha=0.7).settings == {"name": "LinUCB", "dim": 3, "alpha": 0.7, "ridge": 1.0}
    shown = repr(CBRAP.contextual(dim=3, sketch_size=2))
    assert "alpha=1.0" in shown and "noise" not in shown and "sketch_size=2" in shown
    assert LinTS.contextual(dim=3, scale=0.5).settings["scale"] == 0.5


def test_what_needs_fixed_arms_is_refused():
    with pytest.raises(ValueError, match=r"switching must be None without fixed arms, got 0\.5"):
        OFUL.contextual(dim=3, switching=0.5)
    for cls in OWN:
        with pytest.raises(ValueError, match="dim must be a whole number"):
            cls.contextual(dim=0, **({"sketch_size": 2} if "sketch_size" in inspect.signature(cls).parameters else {}))
    assert issubclass(MultiscaleCSLB.contextual, ContextualPolicy)
