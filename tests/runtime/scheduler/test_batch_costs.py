"""Which size of batch is worth it: as measured, with trials where nothing is known."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from nodeloom.runtime.scheduler.batch_costs import RECENT, TRY_AGAIN_AFTER, BatchCosts

HERE = "a process"
TRIALS = 2  # batches of a size by one process, until it is known


def measured(**seconds_s: float) -> BatchCosts:
    """`s2=0.3`: batches of two calls were measured to take 0.3 s."""
    costs = BatchCosts()
    for size, value_s in seconds_s.items():
        learn(costs, int(size[1:]), value_s)
    return costs


def learn(costs: BatchCosts, size: int, seconds_s: float, *, times: int = TRIALS) -> None:
    for _ in range(times):
        costs.learn(size, seconds_s, HERE)


def test_where_nothing_is_known_a_pair_is_tried() -> None:
    assert [BatchCosts().best_size(n) for n in (1, 2, 3, 8)] == [1, 2, 2, 2]


def test_a_trial_is_repeated_until_it_has_been_measured_twice() -> None:
    costs = measured(s1=0.1)
    costs.learn(2, 9.0, HERE)
    assert costs.best_size(8) == 2
    costs.learn(2, 9.0, HERE)
    assert costs.best_size(8) == 1


def test_what_the_first_batch_of_a_size_took_a_process_is_forgotten() -> None:
    costs = measured(s1=0.1)
    for process in (HERE, "another process", "a third one"):
        costs.learn(2, 9.0, process)
        assert costs.seconds_s(2) is None
    costs.learn(2, 0.12, "another process")
    assert costs.seconds_s(2) == pytest.approx(0.12)


def test_a_few_slow_batches_say_nothing_and_many_do() -> None:
    costs = measured(s2=0.12)
    learn(costs, 2, 9.0, times=RECENT - 1)
    assert costs.seconds_s(2) == pytest.approx(0.12)
    learn(costs, 2, 9.0, times=1)
    assert costs.seconds_s(2) == pytest.approx(9.0)


def test_trials_double_while_the_half_was_found_to_pay() -> None:
    costs = measured(s1=0.1)
    tried = []
    for _ in range(3):
        tried.append(costs.best_size(8))
        learn(costs, tried[-1], 0.1)
    assert tried == [2, 4, 8]
    assert costs.best_size(8) == 8


def test_no_larger_batch_is_tried_where_a_small_one_does_not_pay() -> None:
    costs = measured(s1=0.1, s2=0.2)
    assert costs.best_size(8) == 1
    assert measured(s1=0.1, s2=0.12, s4=0.24).best_size(8) == 2


def test_a_gain_in_the_noise_is_none() -> None:
    assert measured(s1=0.1, s2=0.199).best_size(2) == 1
    assert measured(s1=0.1, s2=0.197).best_size(2) == 2


def test_sizes_compare_though_something_else_slows_most_batches_of_one() -> None:
    costs = measured(s1=0.1, s2=0.19)
    for slow in (1.2, 1.05, 1.3, 1.0, 1.2, 1.4):
        learn(costs, 2, 0.19 * slow, times=2)
    assert costs.best_size(2) == 2
    assert costs.seconds_s(2) == pytest.approx(0.19)


def test_the_larger_a_batch_the_more_it_must_save() -> None:
    assert measured(s1=0.1, s2=0.19, s4=0.375).best_size(4) < 4  # 1.3 % less by the call
    assert measured(s1=0.1, s2=0.19, s4=0.37).best_size(4) == 4  # 2.6 %


def test_a_size_that_pays_is_used_though_a_smaller_one_was_found_not_to() -> None:
    costs = measured(s1=0.1, s2=0.2, s3=0.27)
    assert [costs.best_size(n) for n in (1, 2, 3)] == [1, 1, 3]


def test_a_small_gain_of_two_leads_to_a_trial_of_more() -> None:
    costs = measured(s1=0.1, s2=0.19)
    assert costs.best_size(4) == 4
    learn(costs, 4, 0.3, times=TRIALS)
    assert costs.best_size(4) == 4


def test_a_trial_is_no_larger_than_what_is_ready() -> None:
    costs = measured(s1=0.1, s2=0.1)
    assert costs.best_size(3) == 3  # by the line: as cheap as two
    assert costs.best_size(4) == 4  # a trial
    assert costs.best_size(7) == 4


def test_between_measured_sizes_a_line_is_drawn() -> None:
    costs = measured(s1=0.1, s2=0.12, s4=0.2)
    assert costs.seconds_s(3) == pytest.approx(0.16)
    assert costs.seconds_s(6) == pytest.approx(0.28)


def test_a_line_that_falls_below_zero_is_cut() -> None:
    assert measured(s2=0.1, s4=0.5).seconds_s(1) == 0.0


def test_one_size_says_nothing_of_others() -> None:
    costs = measured(s2=0.1)
    assert costs.seconds_s(2) == pytest.approx(0.1)
    assert costs.seconds_s(1) is None
    assert costs.seconds_s(3) is None


def test_among_equally_cheap_sizes_the_smallest_is_taken() -> None:
    # Per call 0.1, 0.05, 0.0495: four end later than two and save nothing to speak of.
    assert measured(s1=0.1, s2=0.1, s4=0.198).best_size(4) == 2


def test_what_is_ready_goes_in_the_batches_that_take_least_together() -> None:
    # Two and one take longer than three at once, though a pair takes no more by the call.
    assert measured(s1=0.1, s2=0.19, s3=0.285).best_size(3) == 3
    # Three and two at once are nearly as cheap as five, and the first ones end sooner.
    assert measured(s1=0.1, s2=0.15, s3=0.2, s4=0.29).best_size(5) == 2


def test_a_size_that_was_not_run_for_long_is_tried_again() -> None:
    costs = measured(s1=0.1, s2=0.3)
    learn(costs, 1, 0.1, times=TRY_AGAIN_AFTER)
    assert costs.best_size(2) == 1
    learn(costs, 1, 0.1, times=1)
    assert costs.best_size(2) == 2
    assert costs.seconds_s(2) is None
    learn(costs, 2, 0.1, times=1)
    assert costs.seconds_s(2) == pytest.approx(0.1)
    assert costs.best_size(2) == 2


def test_a_size_that_fails_its_new_trial_is_left_at_once() -> None:
    costs = measured(s1=0.1, s2=0.3)
    learn(costs, 1, 0.1, times=TRY_AGAIN_AFTER + 1)
    learn(costs, 2, 0.3, times=1)
    assert costs.best_size(2) == 1


def test_no_size_is_tried_between_those_that_are_in_use() -> None:
    costs = measured(s1=0.1, s2=0.12, s3=0.15)
    learn(costs, 3, 0.15, times=2 * TRY_AGAIN_AFTER)  # two was not run for long
    assert costs.best_size(3) == 3


def test_a_call_alone_is_never_forgotten() -> None:
    costs = measured(s1=0.1, s2=0.15)
    learn(costs, 2, 0.15, times=2 * TRY_AGAIN_AFTER)
    assert costs.seconds_s(1) == pytest.approx(0.1)


def test_an_answer_holds_until_the_next_batch_is_measured() -> None:
    costs = measured(s1=0.1, s2=0.1, s4=0.1)
    assert costs.best_size(4) == 4
    learn(costs, 4, 9.0, times=RECENT)
    learn(costs, 2, 0.1, times=1)
    assert costs.best_size(4) == 2


@pytest.mark.parametrize(
    "law",
    [lambda n: 0.1, lambda n: 0.1 * n, lambda n: 0.05 + 0.05 * n, lambda n: 0.1 * n**1.5],
    ids=["free", "linear", "affine", "worse"],
)
def test_in_the_long_run_the_cheapest_size_is_found(law: Callable[[int], float]) -> None:
    costs = BatchCosts()
    for _ in range(4 * TRIALS):
        costs.learn(costs.best_size(8), law(costs.best_size(8)), HERE)
        costs.learn(1, law(1), HERE)
    best_s = min(law(n) / n for n in range(1, 9))
    size = costs.best_size(8)
    assert law(size) / size <= 1.05 * best_s
