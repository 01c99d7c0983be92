from bertvision.records import DataFile, FewerRows, TrainingPoint
from bertvision.report.drawing import house_look
from bertvision.report.learning_figures import less_data_curve, training_curve


def points_of(axis):
    return [line.get_xydata().tolist() for line in axis.lines]


def test_loss_and_score_are_drawn_over_steps_each_where_it_is_known(make_record):
    def point(step, loss, score):
        return TrainingPoint(step=step, epoch=step / 10, loss=loss, score=score, lr=1e-3, seconds=1.0)

    records = [
        make_record(model="encoder", kind="encoder", training=[point(10, 2.0, None), point(20, 1.0, 40.0)]),
        make_record(model="learned_pooling", training=[point(5, 3.0, 30.0), point(10, None, 50.0)]),
        make_record(model="regression"),
    ]
    with house_look():
        loss, score = training_curve(records).axes
    assert points_of(loss) == [[[10, 2], [20, 1]], [[5, 3]]]
    assert points_of(score) == [[[20, 40]], [[5, 30], [10, 50]]]


def test_old_records_have_no_training_to_draw(make_record):
    assert training_curve([make_record()]) is None


def test_regressions_on_fewer_rows_make_a_curve_that_ends_at_all_rows(make_record):
    train = {"train": DataFile(name="t", sha256=None, examples=40, dropped=0, windows=40)}
    fewer = [FewerRows(rows=rows, draws=3, scores={"accuracy": score}) for rows, score in ((10, 60.0), (20, 70.0))]
    record = make_record(task="sst2", fraction=None, scores={"accuracy": 75.0}, fewer_rows=fewer, data=train)
    with house_look():
        (axis,) = less_data_curve([record]).axes
    assert points_of(axis) == [[[10, 60], [20, 70], [40, 75]]]
