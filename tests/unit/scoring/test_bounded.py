from scoring.bounded import BoundedDict


def test_a_full_mapping_forgets_all_before() -> None:
    kept: BoundedDict[str, int] = BoundedDict(2)
    kept.keep("a", 1)
    kept.keep("b", 2)

    assert kept.keep("c", 3) == 3
    assert kept == {"c": 3}


def test_a_few_values_are_kept_together() -> None:
    kept: BoundedDict[str, int] = BoundedDict(2)
    kept.keep_all([("a", 1), ("b", 2)])
    kept.keep_all([("c", 3)])

    assert kept == {"c": 3}


def test_the_oldest_goes_first() -> None:
    kept: BoundedDict[str, int] = BoundedDict(2)
    for key, value in (("a", 1), ("b", 2), ("a", 3), ("c", 4)):
        kept.keep_newest(key, value)

    assert list(kept.items()) == [("a", 3), ("c", 4)]
