"""What finished work leaves behind, as JSON: runs, pre-trainings, searches, costs, differences, benchmarks, studies."""

from bertvision.records.benchmarks import BenchRecord, Ratio, Side, bench_file, read_bench_records, write_bench_record
from bertvision.records.costs import (
    COSTS_FOLDER,
    CostRecord,
    Round,
    RowSize,
    Speed,
    Spent,
    costs_path,
    read_costs,
    read_method_costs,
    write_costs,
)
from bertvision.records.differences import (
    DIFFERENCES_FILE,
    Apart,
    DifferenceRecord,
    read_differences,
    write_differences,
)
from bertvision.records.methods import (
    GIVEN,
    Rate,
    Tried,
    choose,
    held_out_metric,
    merge_variants,
    tried_rates,
)
from bertvision.records.mistakes import Mistake, MistakesRecord, read_mistakes, write_mistakes
from bertvision.records.pretrainings import (
    HeldOutLoss,
    PretrainingRecord,
    TextSize,
    read_pretraining_record,
    write_pretraining,
)
from bertvision.records.record import Provenance, provenance
from bertvision.records.runs import (
    MAIN_SCORES,
    Curves,
    DataFile,
    Efficiency,
    FewerRows,
    Inference,
    Parameters,
    ResultKind,
    RunRecord,
    Seconds,
    State,
    TrainingPoint,
    fraction_name,
    in_order,
    main_score,
    read_record,
    read_records,
    record_path,
    record_paths,
    state_name,
    tuned_for,
    write_record,
)
from bertvision.records.searches import (
    SEARCH_FILE,
    SearchRecord,
    SearchTrial,
    read_search_record,
    write_search_record,
)
from bertvision.records.studies import (
    JudgedClaim,
    JudgedResult,
    SeedMean,
    StudyRecord,
    Verdict,
    read_study_records,
    write_study,
)
