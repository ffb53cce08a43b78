from hypothesis import given
from hypothesis import strategies as st

from clusterip.allocation.numbers import Taken

NUMBERS = st.one_of(st.integers(0, 600), st.integers(2**64 - 300, 2**64 + 300), st.integers(0, 2**128 - 1))


@given(st.lists(st.tuples(st.booleans(), NUMBERS), max_size=60), NUMBERS)
def test_it_behaves_as_a_set_that_knows_the_next_number_it_lacks(steps: list[tuple[bool, int]], start: int) -> None:
    taken, model = Taken(), set[int]()
    for add, number in steps:
        if add:
            assert taken.add(number) == (number not in model)
            model.add(number)
        else:
            assert taken.discard(number) == (number in model)
            model.discard(number)
    assert len(taken) == len(model)
    free = start
    while free in model:
        free += 1
    assert taken.next_free(start) == free


def test_full_groups_are_jumped_over_and_found_again_after_a_release() -> None:
    taken = Taken()
    for number in range(256 * 256 + 10):
        taken.add(number)
    assert taken.next_free(0) == 256 * 256 + 10
    taken.discard(5 * 256 + 3)
    assert taken.next_free(0) == 5 * 256 + 3
    taken.discard(70)
    assert taken.next_free(0) == 70
    assert taken.next_free(5 * 256 + 4) == 256 * 256 + 10
