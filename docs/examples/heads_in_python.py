"""Train two heads on all layers of a briefly tuned encoder, and ensemble them, without any files."""

from bertvision.data import WindowConfig, cut_windows, read_squad
from bertvision.heads import (
    AnswerConfig,
    BatchConfig,
    HeadConfig,
    HeadsConfig,
    LiveStates,
    build_heads,
    choose_compute,
    combine_logits,
    grid_of,
    predict_spans,
    score_predictions,
    token_logits,
    train_heads_together,
)
from bertvision.tuning import FinetuneConfig, finetune_encoder, freeze, load_encoder

compute = choose_compute()  # a GPU where there is one
train, dev = read_squad("sample:train").examples[:64], read_squad("sample:dev").examples[:36]

# Text to windows.
encoder = load_encoder("default-model")  # the default model's, which has read SQuAD, but not these passages
sizes = WindowConfig(max_length=192, stride=64)
train_windows = cut_windows(train, encoder.tokenizer, sizes)
dev_windows = cut_windows(dev, encoder.tokenizer, sizes, labelled=False)

# A briefly fine-tuned encoder; the generator hands control back at every fraction.
output = build_heads([HeadConfig.model_validate("last_linear")], encoder.shape, seed=1)["last_linear"]
brief = FinetuneConfig(fractions=(1.0,), batch=BatchConfig(windows=16), lr=2e-4, dropout=0.0)
for checkpoint in finetune_encoder(encoder, output, train_windows, brief, seed=1, compute=compute):
    print(f"tuned for a fraction of {checkpoint.fraction:g} (1: an epoch) in {checkpoint.seconds:.0f} s")

# All heads from one pass of the frozen encoder.
names = ("learned_pooling", "adapter_386_shared_skip")
config = HeadsConfig(train=tuple(HeadConfig.model_validate(name) for name in names), batch=BatchConfig(windows=8))
heads = build_heads(config.train, encoder.shape, seed=1)
states = LiveStates(freeze(encoder, compute), train_windows, config.batch, 1, compute)
for epoch in train_heads_together(heads, states, config, seed=1, compute=compute):
    print(f"trained {len(heads)} heads in {epoch.seconds:.0f} s")

# Logits to answers to official scores; an ensemble costs nothing.
grid = grid_of(dev_windows, [question.id for question in dev])
logits = token_logits(encoder, {"encoder": output, **heads}, dev_windows, compute)
logits["all"] = combine_logits(grid, list(logits.values()), "max")
for name, each in logits.items():
    answers = predict_spans(grid, each, [question.context for question in dev], AnswerConfig(), has_null=True)
    scores = score_predictions(dev, answers)
    print(f"{name:24} F1 {scores['f1']:5.1f}   F1 of the best span {scores['best_span_HasAns_f1']:5.1f}")
