"""Many heads in one pass against the bare encoder, against plain code, and against a pass for each; on new windows."""

from collections.abc import Callable, Sequence

import torch
from pydantic import Field

from benchmarks.measuring import BenchData, cudnn_attention, measure_in_turns, read_bench_data, short_name, subject
from bertvision.encoder.encode import StateSource, freeze
from bertvision.encoder.load import Encoder
from bertvision.heads.config import HeadConfig, HeadsConfig
from bertvision.heads.head import Head
from bertvision.heads.training import build_heads, train_heads_together
from bertvision.progress import SILENT, Progress
from bertvision.records import BenchRecord, provenance
from bertvision.settings import Config, Precision
from bertvision.states.live import LiveStates, PackedLiveStates, packs_states
from bertvision.training.device import Compute, choose_compute
from bertvision.training.objective import span_loss
from bertvision.windows.batches import collate
from bertvision.windows.plan import BatchConfig, StepPlan, lengths_of

POOLING = ("learned_pooling", "average_pooling", "first_last_mean", "last_linear")
RATES = (1e-3, 3e-4)
ADAPTERS = tuple(f"{sharing}{skip}" for sharing in ("shared", "unshared") for skip in ("", "_skip"))


class HeadsBench(Config):
    """What is measured; the defaults are this machine's: BERT-large's shape on a GPU, the small encoder on a CPU."""

    encoder: str | None = None  # None: bert-large (random weights) on a GPU, `default` on a CPU
    windows: int | None = Field(None, ge=1)  # None: 3,000 on a GPU, 100 on a CPU
    states_tokens: int | None = Field(None, ge=384)  # of an encoder's batch; None: 65,536 on a GPU, 4,096 on a CPU
    heads_tokens: int | None = Field(None, ge=384)  # of a head's step; None: 16,384 on a GPU, 4,096 on a CPU
    rates: tuple[float, ...] = RATES  # settings of every adapter; there are four adapters of each width
    rounds: int = Field(5, ge=1)
    passes: bool | None = None  # also train in a pass per head; None: on a CPU
    device: str = "auto"
    precision: Precision = "auto"


def bench_heads(config: HeadsBench, progress: Progress = SILENT) -> BenchRecord:
    """Time epochs over windows drawn anew: the encoder alone, with all heads, the same in plain code, a pass each."""
    compute = choose_compute(config.device, config.precision)
    is_gpu = compute.device.type == "cuda"
    encoder = freeze(subject(config.encoder or ("bert-large" if is_gpu else "default")), compute)
    count = config.windows or (3000 if is_gpu else 100)
    data = read_bench_data("squad", encoder, count, spare=4 * count)
    states_batch = BatchConfig(tokens=config.states_tokens or (65536 if is_gpu else 4096))
    batch = BatchConfig(tokens=config.heads_tokens or (16384 if is_gpu else 4096))
    settings = HeadsConfig(train=head_variants(config.rates), batch=batch)
    work = _Work(encoder, data, settings, states_batch, compute)
    sides: dict[str, Callable[[], object]] = {
        "encoder alone": work.encode,
        **({"encoder alone, cuDNN's attention": work.encode_with_cudnn} if is_gpu else {}),
        "live states": work.read_live,
        **({"live states, packed": work.read_packed} if packs_states(encoder, compute) else {}),
        f"{len(settings.train)} heads, one pass": work.train_together,
        f"{len(settings.train)} heads, one pass, plain code": work.train_plainly,
    }
    if config.passes or (config.passes is None and not is_gpu):
        sides[f"{len(settings.train)} heads, a pass each"] = work.train_one_by_one
    tokens = float(lengths_of(data.windows).sum())
    return BenchRecord(
        name="heads",
        variant=short_name(encoder),
        about="one epoch of training on windows drawn anew: forward, backward, optimizer; the encoder is frozen",
        settings={
            **config.model_dump(mode="json"),
            "states_tokens": states_batch.tokens,
            "heads_tokens": batch.tokens,
            "heads": [head.name for head in settings.train],
        },
        sides=measure_in_turns(sides, config.rounds, compute.device, progress, work.renew),
        figures={"tokens": tokens, "windows": float(len(data.windows))},
        provenance=provenance(compute.name, compute.precision),
    )


def head_variants(rates: Sequence[float] = RATES) -> tuple[HeadConfig, ...]:
    """Return 4 pooling heads, and adapters of both widths at every learning rate: 20 heads with two of them."""
    adapters = [
        HeadConfig.model_validate({"head": f"adapter_{width}_{kind}", "name": f"adapter_{width}_{kind}-{lr}", "lr": lr})
        for width in (64, 386)
        for kind in ADAPTERS
        for lr in rates
    ]
    return (*(HeadConfig.model_validate(name) for name in POOLING), *adapters)


class _Work:
    """One epoch over windows of the same number, in different ways."""

    def __init__(
        self,
        encoder: Encoder,
        data: BenchData,
        settings: HeadsConfig,
        states_batch: BatchConfig,
        compute: Compute,
    ) -> None:
        self._encoder, self._data, self._settings = encoder, data, settings
        self._states_batch, self._compute = states_batch, compute
        self._windows, self._draws = data.windows, 0
        # Built once: drawing the start of 20 heads takes longer than some passes.
        self._heads = build_heads(settings.train, encoder.shape, seed=1)
        for head in self._heads.values():
            head.to(compute.device)

    def renew(self) -> None:
        """Draw other windows: shapes that come again would be faster than a run's."""
        self._draws += 1
        self._windows = self._data.draw(self._draws)

    def encode(self) -> None:
        """Run the encoder alone, with all its states."""
        types = self._encoder.takes_segments
        plan = StepPlan(lengths_of(self._windows), self._settings.batch, 0, self._states_batch)
        for planned in plan.epoch(0):
            batch = collate(self._windows, planned.rows, 0).to(self._compute.device)
            with torch.no_grad():
                self._encoder.model(
                    input_ids=batch.ids,
                    attention_mask=batch.mask.long(),
                    output_hidden_states=True,
                    **({"token_type_ids": batch.segments} if types else {}),
                )

    def encode_with_cudnn(self) -> None:
        """Run it as torch comes, which plans attention anew for every shape."""
        with cudnn_attention(True):
            self.encode()

    def read_live(self) -> None:
        """Run it as heads have it run, without any."""
        for _ in self._padded().epoch(0):
            pass

    def read_packed(self) -> None:
        """Run it as heads that score each token have it run on a GPU, without any."""
        for _ in self._source().epoch(0):
            pass

    def train_together(self) -> None:
        """Train all heads in one pass."""
        self._train(self._settings.train)

    def train_one_by_one(self) -> None:
        """Train every head in a pass of its own."""
        for head in self._settings.train:
            self._train((head,))

    def train_plainly(self) -> None:
        """Train all heads in one pass as one would write it down: head by head, loss, backward, clip, step."""
        learning = [(head, torch.optim.AdamW(head.parameters(), lr=1e-3)) for head in self._heads.values()]
        for batch in self._padded().epoch(0):
            for head, optimizer in learning:
                with self._compute.autocast():
                    logits = head(*batch.seen)
                loss = span_loss(logits, batch.windows.starts, batch.windows.ends, "sum")
                _step(head, loss, optimizer)

    def _train(self, train: tuple[HeadConfig, ...]) -> None:
        settings = self._settings.model_copy(update={"train": train})
        heads = {head.name: self._heads[head.name] for head in train}
        for _ in train_heads_together(heads, self._source(), settings, seed=1, compute=self._compute):
            pass

    def _source(self) -> StateSource:
        batch, states_batch = self._settings.batch, self._states_batch
        kind = PackedLiveStates if packs_states(self._encoder, self._compute) else LiveStates
        return kind(self._encoder, self._windows, batch, 0, self._compute, states_batch=states_batch)

    def _padded(self) -> LiveStates:
        batch, states_batch = self._settings.batch, self._states_batch
        return LiveStates(self._encoder, self._windows, batch, 0, self._compute, states_batch=states_batch)


def _step(head: Head, loss: torch.Tensor, optimizer: torch.optim.Optimizer) -> None:
    loss.backward()
    torch.nn.utils.clip_grad_norm_(head.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
