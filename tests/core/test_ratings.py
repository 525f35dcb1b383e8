"""Ratings from both formats of folder, and arms and rewards from ratings."""

import numpy as np
import pytest
from conftest import rounds
from rating_files import EVENTS, random_events, write_grouplens, write_recbole

from sketchbandits import OFUL, UCB1, simulate
from sketchbandits.environments import Ratings, ReplayEnvironment, item_factors, read_movielens

KEPT = [1, 2, 3, 4, 5, 7]
FORMS = pytest.mark.parametrize("write", [write_grouplens, write_recbole], ids=["grouplens", "recbole"])


@pytest.fixture
def ratings(tmp_path) -> Ratings:
    return read_movielens(write_grouplens(tmp_path, random_events()))


# --- reading -------------------------------------------------------------------------------------------------------


@FORMS
def test_a_folder_is_read_whole(write, tmp_path):
    found = read_movielens(write(tmp_path))
    assert found.user_ids == ("5", "7", "12")  # by number, not as text
    assert found.item_ids == ("2", "9", "10", "31")  # 77 has no rating
    assert found.titles == ("Amélie (2001)", "Plain (1990)", "Été, L' (1998)", "31")
    events = zip(found.user, found.item, found.rating, found.timestamp, strict=True)
    expected = [EVENTS[i] for i in KEPT]  # the latest of each pair, in the order of the file
    assert [(found.user_ids[u], found.item_ids[i], r, t) for u, i, r, t in events] == expected
    assert found.scale == (1.0, 5.0)
    assert repr(found) == "Ratings(6 ratings, 3 users, 4 items)"


def test_both_forms_of_the_same_ratings_are_equal(tmp_path):
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    events = random_events()
    one, other = read_movielens(write_grouplens(folders[0], events)), read_movielens(write_recbole(folders[1], events))
    for name in ("user", "item", "rating", "timestamp"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
        assert not getattr(one, name).flags.writeable
    assert (one.user_ids, one.item_ids, one.titles) == (other.user_ids, other.item_ids, other.titles)


def test_of_two_ratings_at_one_time_the_later_line_counts(tmp_path):
    events = [("1", "1", 2, 9), ("1", "2", 1, 9), ("1", "1", 5, 9)]
    found = read_movielens(write_grouplens(tmp_path, events))
    assert found.rating.tolist() == [1.0, 5.0]
    assert found.item.tolist() == [1, 0]


@FORMS
def test_titles_may_be_missing(write, tmp_path):
    write(tmp_path)
    for file in [*tmp_path.glob("*.item")]:
        file.unlink()
    assert read_movielens(tmp_path).titles == ("2", "9", "10", "31")


def test_recbole_columns_may_stand_in_any_order_among_others(tmp_path):
    lines = ["rating:float\tplace:token\titem_id:token\ttimestamp:float\tuser_id:token", "4.5\tx\tb7\t2e3\tu"]
    (tmp_path / "other.inter").write_text("\n".join(lines) + "\n\n", encoding="utf-8-sig")
    (tmp_path / "other.item").write_text("item_id:token\tyear:token\nb7\t1999\n")  # no title in it
    found = read_movielens(str(tmp_path))
    assert (found.user_ids, found.item_ids, found.titles) == (("u",), ("b7",), ("b7",))
    assert (found.rating.item(), found.timestamp.item()) == (4.5, 2000.0)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1\t2\t3", r"u\.data line 2 must be a user, .* separated by tabs, got '1\\t2\\t3'"),
        ("1\t2\t3\t4\t5", r"u\.data line 2 must be .* separated by tabs"),
        ("1 2 3 4", r"u\.data line 2 must be .* got '1 2 3 4'"),
        ("1\t2\tgood\t4", r"u\.data line 2 must be .* a finite rating .* got '1\\t2\\tgood\\t4'"),
        ("1\t2\tnan\t4", r"line 2 must be .* a finite rating"),
        ("1\t2\t3\tinf", r"line 2 must be .* a finite timestamp"),
        ("\t2\t3\t4", r"line 2 must be a user"),
        ("1\t \t3\t4", r"line 2 must be a user, an item"),
        ("1\t2\t3\t" + "4" * 90 + "x", r"got '1\\t2\\t3\\t4+\.\.\.'$"),
    ],
)
def test_a_malformed_line_is_named(tmp_path, line, message):
    (tmp_path / "u.data").write_text(f"1\t1\t3\t881250949\n{line}\n1\t3\t3\t881250949\n")
    with pytest.raises(ValueError, match=message):
        read_movielens(tmp_path)


def test_malformed_tables_are_named(tmp_path):
    inter = tmp_path / "x.inter"
    for text, message in [
        ("", r"x\.inter line 1 must name the columns user_id:TYPE, .* got none called user_id, item_id, rating"),
        ("user_id:token\titem_id:token\trating:float\n", r"line 1 must name .* got none called timestamp"),
        ("user_id:token\titem_id:token\trating:float\ttimestamp:float\n", r"x\.inter must hold at least one rating"),
        ("user_id:t\titem_id:t\trating:f\ttimestamp:f\n1\t2\t3\n", r"x\.inter line 2 must be 4 columns .* got '1\\t2"),
        ("user_id:t\titem_id:t\trating:f\ttimestamp:f\n\n1\t2\tx\t4\n", r"x\.inter line 3 must be a user"),
    ]:
        inter.write_text(text)
        with pytest.raises(ValueError, match=message):
            read_movielens(tmp_path)
    inter.write_bytes("user_id:t\titem_id:t\trating:f\ttimestamp:f\né\t2\t3\t4\n".encode("latin-1"))
    with pytest.raises(ValueError, match=r"x\.inter must be text in UTF-8, got byte 0xe9"):
        read_movielens(tmp_path)
    write_recbole(tmp_path)
    inter.unlink()
    (tmp_path / "any.item").write_text("item_id:token\ttitle:token_seq\n2\n")
    with pytest.raises(ValueError, match=r"any\.item line 2 must be 2 columns"):
        read_movielens(tmp_path)


def test_a_malformed_list_of_titles_is_named(tmp_path):
    write_grouplens(tmp_path)
    (tmp_path / "u.item").write_text("2|Two\n9 Nine\n")
    with pytest.raises(
        ValueError, match=r"u\.item line 2 must be an item and its title, separated by \|, got '9 Nine'"
    ):
        read_movielens(tmp_path)


def test_a_folder_without_ratings_or_with_two_kinds_is_refused(tmp_path):
    allowed = r"folder must hold u\.data \(GroupLens\), or exactly one file that ends in \.inter \(RecBole\), got "
    with pytest.raises(ValueError, match=allowed + r".*with neither"):
        read_movielens(tmp_path)
    with pytest.raises(ValueError, match=allowed + r".*absent' with no such folder"):
        read_movielens(tmp_path / "absent")
    write_recbole(tmp_path)
    (tmp_path / "b.inter").write_text("")
    with pytest.raises(ValueError, match=allowed + r".*with any\.inter, b\.inter"):
        read_movielens(tmp_path)
    (tmp_path / "b.inter").unlink()
    write_grouplens(tmp_path)
    with pytest.raises(ValueError, match=allowed + r".*with u\.data, any\.inter"):
        read_movielens(tmp_path)


# --- ratings -------------------------------------------------------------------------------------------------------


def test_a_split_is_by_time_and_loses_nothing(ratings):
    earlier, later = ratings.split(0.7)
    assert len(earlier) == round(0.7 * len(ratings))
    assert earlier.timestamp.max() <= later.timestamp.min()
    for part in (earlier, later):
        assert (np.diff(part.timestamp) >= 0).all()
        assert (part.item_ids, part.titles, part.scale) == (ratings.item_ids, ratings.titles, ratings.scale)
    both = [np.concatenate([getattr(part, name) for part in (earlier, later)]) for name in ("user", "item", "rating")]
    assert sorted(zip(*both, strict=True)) == sorted(zip(ratings.user, ratings.item, ratings.rating, strict=True))
    tied = earlier.timestamp[-1] == ratings.timestamp  # ties stay as in the file
    at_end = earlier.item[earlier.timestamp == earlier.timestamp[-1]]
    np.testing.assert_array_equal(at_end, ratings.item[tied][: len(at_end)])


def test_rewards_are_ratings_between_zero_and_one(ratings):
    items = np.array([7, 2, 5])
    arms, rewards = ratings.rewards(items)
    chosen = np.isin(ratings.item, items)
    np.testing.assert_array_equal(items[arms], ratings.item[chosen])
    np.testing.assert_array_equal(rewards, (ratings.rating[chosen] - 1) / 4)
    assert (rewards.min(), rewards.max()) == (0.0, 1.0)


def test_items_are_counted(ratings):
    counts = np.bincount(ratings.item)
    assert ratings.rated_items().tolist() == list(range(13))
    np.testing.assert_array_equal(ratings.rated_items(15), np.flatnonzero(counts >= 15))
    assert 0 < len(ratings.rated_items(15)) < 13


def test_ratings_refuse(ratings, tmp_path):
    equal = read_movielens(write_grouplens(tmp_path, [(u, i, 3, 0) for u in range(4) for i in range(5)]))
    allowed = "items must be distinct positions, each of an item with a rating here, got "
    for call, message in [
        (lambda: ratings.split(1.0), "share must be a number strictly between 0 and 1, got 1.0"),
        (lambda: ratings.split(1e-4), "share must leave ratings on both sides, got 0.0001 of 190 ratings"),
        (lambda: ratings.rated_items(0), "least must be a whole number >= 1, got 0"),
        (lambda: ratings.rewards([]), allowed + r"shape \(0,\) of float64"),
        (lambda: ratings.rewards([1.0]), allowed + r"shape \(1,\) of float64"),
        (lambda: ratings.rewards([0, 13]), allowed + "13, which has none"),
        (lambda: ratings.rewards([-1]), allowed + "-1, which has none"),
        (lambda: ratings.rewards([3, 3, 4]), allowed + "1 repeated"),
        (lambda: equal.rewards([0]), "ratings must not all be equal, got only 3"),
        (lambda: item_factors(equal, 2), "ratings must not all be equal, got only 3"),
        (lambda: item_factors(ratings, 1), "dim must be a whole number from 2 to 13, got 1"),
        (lambda: item_factors(ratings, 14), "dim must be a whole number from 2 to 13, got 14"),
        (lambda: item_factors(ratings, 13, intercept=False), "dim must be a whole number from 1 to 12, got 13"),
        (lambda: item_factors(ratings, 4, intercept=1), "intercept must be True or False, got 1"),
        (lambda: item_factors(ratings, 4, items=[2, 99]), allowed + "99, which has none"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()
    alone = read_movielens(write_grouplens(tmp_path, [(1, i, i, 0) for i in range(5)]))
    with pytest.raises(ValueError, match="ratings must be of at least 2 users and 2 items, got 1 and 5"):
        item_factors(alone, 2)


# --- factors -------------------------------------------------------------------------------------------------------


def dense(ratings: Ratings):
    matrix = np.zeros((23, 13))
    matrix[ratings.user, ratings.item] = ratings.rating - ratings.rating.mean()
    return matrix


def test_factors_are_those_of_the_full_svd(ratings):
    factors = item_factors(ratings, 5, intercept=False)
    assert factors.shape == (13, 5)
    _, values, rows = np.linalg.svd(dense(ratings))
    expected = rows[:5].T * values[:5]
    expected *= np.sign(expected[np.abs(expected).argmax(axis=0), range(5)])
    np.testing.assert_allclose(factors, expected / np.linalg.norm(expected, axis=1).max(), atol=1e-12)
    gram = factors.T @ factors
    np.testing.assert_allclose(gram, np.diag(np.diag(gram)), atol=1e-12)
    assert (np.diff(np.diag(gram)) < 0).all()


def test_an_intercept_is_as_long_as_the_longest_factor(ratings):
    arms = item_factors(ratings, 6)
    assert arms.shape == (13, 6)
    np.testing.assert_allclose(arms[:, 0], np.sqrt(0.5), rtol=1e-15)
    assert np.linalg.norm(arms, axis=1).max() == pytest.approx(1.0, abs=1e-15)
    np.testing.assert_allclose(arms[:, 1:] * np.sqrt(2), item_factors(ratings, 5, intercept=False), atol=1e-14)


def test_factors_are_repeatable_and_depend_on_the_training_part_alone(ratings):
    earlier, later = ratings.split()
    np.testing.assert_array_equal(item_factors(earlier, 4), item_factors(earlier, 4))
    changed = np.where(np.isin(np.arange(190), np.argsort(ratings.timestamp, kind="stable")[152:]), 1.0, ratings.rating)
    other = Ratings(
        ratings.user,
        ratings.item,
        changed,
        ratings.timestamp,
        ratings.user_ids,
        ratings.item_ids,
        ratings.titles,
        ratings.scale,
    )
    assert (other.split()[1].rating != later.rating).any()
    np.testing.assert_array_equal(item_factors(earlier, 4), item_factors(other.split()[0], 4))


def test_chosen_items_are_rows_of_all_scaled_anew(ratings):
    every, chosen = item_factors(ratings, 4, intercept=False), item_factors(ratings, 4, items=[11, 3], intercept=False)
    rows = every[[11, 3]]
    np.testing.assert_allclose(chosen, rows / np.linalg.norm(rows, axis=1).max(), atol=1e-15)


def test_more_factors_than_the_ratings_have_are_zero(tmp_path):
    events = [(user, item, 1 + 4 * ((user + item) % 2), 0) for user in range(7) for item in range(6)]
    arms = item_factors(read_movielens(write_grouplens(tmp_path, events)), 4, intercept=False)
    assert np.linalg.matrix_rank(arms, tol=1e-6) == 2 - (np.mean([event[2] for event in events]) == 3)
    assert np.isfinite(arms).all()


def test_items_without_training_ratings_are_left_out(ratings):
    earlier, later = ratings.split(0.15)
    rated = earlier.rated_items()
    assert len(rated) < len(later.rated_items())
    assert item_factors(earlier, 3).shape == (len(rated), 3)
    unrated = np.setdiff1d(later.rated_items(), rated)
    with pytest.raises(ValueError, match=f"got {unrated[0]}, which has none"):
        item_factors(earlier, 3, items=[*rated[:2], unrated[0]])


def test_the_environment_plays_in_simulate(ratings):
    earlier, later = ratings.split()
    items = np.intersect1d(earlier.rated_items(), later.rated_items(3))
    arms = item_factors(earlier, 4, items=items)
    env = ReplayEnvironment(arms, *later.rewards(items))
    policies = {"oful": OFUL(arms, noise=0.5, radius="logdet"), "ucb1": UCB1(arms, noise=0.5)}
    length = rounds(20_000, 300)
    result = simulate(env, policies, rounds=length, seed=0)
    assert 0 < result.final_regret["ucb1"].item() < length * env.gaps.mean() * (0.5 if length > 300 else 1.1)
    again = simulate(env, policies, rounds=length, seed=0)
    assert result.final_regret == again.final_regret
