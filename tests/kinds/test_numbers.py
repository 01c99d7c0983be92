import numpy as np
import pytest

from bertvision.kinds.numbers import decile_section, score_deciles


def test_rows_are_parted_into_tenths_by_their_golds():
    gold = np.random.default_rng(0).permutation(50) / 10
    found = gold + np.where(gold < 0.45, 1.0, -0.5)
    tenths = score_deciles(gold.tolist(), found.tolist())
    assert [each.rows for each in tenths] == [5] * 10 + [50]
    assert [(each.low, each.high) for each in tenths[:2]] == [(0.0, 0.4), (0.5, 0.9)]
    assert tenths[0][3:] == pytest.approx((1.0, 1.0, 1.0))
    assert tenths[9][3:] == pytest.approx((-0.5, 0.5, 0.5))
    assert tenths[10][3:] == pytest.approx(
        ((5 - 22.5) / 50, (5 + 22.5) / 50, ((5 + 45 * 0.25) / 50) ** 0.5)  # of all
    )


def test_equal_golds_stay_together_and_an_empty_tenth_has_no_errors():
    tenths = score_deciles([1.0] * 15 + [2.0] * 5, [1.0] * 20)
    assert [each.rows for each in tenths if each.rows] == [15, 5, 20]
    assert tenths[1] == (0, None, None, None, None, None)


@pytest.mark.parametrize(("scale", "cell"), [(1, "+0.500"), (1e6, "+500,000"), (1e-3, "+0.000500")])
def test_three_digits_are_shown_of_numbers_of_any_size(scale, cell):
    gold = [place * scale for place in range(20)]
    section = decile_section({"A": score_deciles(gold, [each + 0.5 * scale for each in gold])})
    assert section.header == ("gold", "rows", "bias A", "MAE A", "RMSE A")
    assert section.rows[-1][:3] == ("all", "20", cell)


def test_tenths_of_large_numbers_are_written_out():
    prices = [250_000.0 + 1_234.5 * place for place in range(20)]
    section = decile_section({"A": score_deciles(prices, prices)})
    assert section.rows[0][0] == "250,000 to 251,234"


def test_tenths_without_rows_are_not_shown():
    section = decile_section({"A": score_deciles([1.0] * 15 + [2.0] * 5, [1.0] * 20)})
    assert [row[:2] for row in section.rows] == [("1", "15"), ("2", "5"), ("all", "20")]
