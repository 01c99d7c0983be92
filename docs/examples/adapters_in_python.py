"""Train two adapters on one frozen encoder, ship them as two small files, and switch between them."""

import tempfile
from pathlib import Path

import torch
from torch import nn

from bertvision.encoder.load import load_encoder
from bertvision.encoder.tuning.adapter_file import load_adapters, save_adapters
from bertvision.encoder.tuning.config import TuneConfig
from bertvision.encoder.tuning.tune import tune
from bertvision.encoder.tuning.variants import set_active

SENTENCES = {
    "The film was a joy from start to finish.": ("good", "film"),
    "A dull film that never ends.": ("bad", "film"),
    "Wonderful acting and a clever plot.": ("good", "film"),
    "The plot makes no sense and the actors know it.": ("bad", "film"),
    "The soup was hot, rich and full of flavour.": ("good", "food"),
    "Cold chips and a rude waiter.": ("bad", "food"),
    "Fresh bread, lovely cheese, friendly service.": ("good", "food"),
    "The fish was stale and the rice was burnt.": ("bad", "food"),
}
TASKS = {"mood": ("good", "bad"), "topic": ("film", "food")}

torch.manual_seed(1)
encoder = load_encoder("default")
batch = encoder.tokenizer(list(SENTENCES), padding=True, return_tensors="pt")
labels = {
    task: torch.tensor([names.index(tags[place]) for tags in SENTENCES.values()])
    for place, (task, names) in enumerate(TASKS.items())
}


def read(model: nn.Module, output: nn.Module) -> torch.Tensor:
    return output(model(**batch).last_hidden_state[:, 0])


folder = Path(tempfile.mkdtemp())
outputs = {}
for task in TASKS:
    # Every tuning starts from the plain encoder; what it trains (adapters and layer norms) is its own.
    tuned = tune(encoder.model, TuneConfig(train="none", insert="houlsby:16"), seed=1, name=task)
    print(tuned)
    outputs[task] = nn.Linear(encoder.shape.hidden, 2)
    learning = [param for param in encoder.model.parameters() if param.requires_grad]
    optimizer = torch.optim.AdamW([*learning, *outputs[task].parameters()], lr=3e-3)
    for _ in range(20):
        optimizer.zero_grad()
        nn.functional.cross_entropy(read(encoder.model, outputs[task]), labels[task]).backward()
        optimizer.step()
    save_adapters(folder / f"{task}.safetensors", encoder.model)

# Elsewhere: the plain encoder once, and a file per task.
fresh = load_encoder("default")
for task in TASKS:
    load_adapters(folder / f"{task}.safetensors", fresh.model, task)
for task in TASKS:
    set_active(fresh.model, task)
    with torch.no_grad():
        right = (read(fresh.model, outputs[task]).argmax(dim=1) == labels[task]).sum().item()
    size = (folder / f"{task}.safetensors").stat().st_size
    print(f"{task}: {right} of {len(SENTENCES)} right, {size / 2**20:.1f} MiB")
set_active(fresh.model, None)  # the plain encoder again, bit for bit
