"""Train two adapters for one frozen encoder and ship them as two small files."""

import copy
import tempfile
from pathlib import Path

import torch
from torch import nn

from bertvision.tuning import TuneConfig, load_adapters, load_encoder, save_adapters, tune

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
    # A copy of the plain encoder for every tuning; what it trains (adapters and layer norms) goes into its file.
    model = copy.deepcopy(encoder.model)
    print(task, tune(model, TuneConfig(train="none", insert="houlsby:16"), seed=1))
    outputs[task] = nn.Linear(encoder.shape.hidden, 2)
    learning = [param for param in model.parameters() if param.requires_grad]
    optimizer = torch.optim.AdamW([*learning, *outputs[task].parameters()], lr=3e-3)
    for _ in range(20):
        optimizer.zero_grad()
        nn.functional.cross_entropy(read(model, outputs[task]), labels[task]).backward()
        optimizer.step()
    save_adapters(folder / f"{task}.safetensors", model)

# Elsewhere: the plain encoder, and a file per task.
for task in TASKS:
    fresh = copy.deepcopy(encoder.model)
    load_adapters(folder / f"{task}.safetensors", fresh)
    with torch.no_grad():
        right = (read(fresh, outputs[task]).argmax(dim=1) == labels[task]).sum().item()
    size = (folder / f"{task}.safetensors").stat().st_size
    print(f"{task}: {right} of {len(SENTENCES)} right, {size / 2**20:.1f} MiB")
