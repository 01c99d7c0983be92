"""Train a pooler of one's own beside a head of the catalog, save it, and load it again."""

import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn

import bertvision


class WeighedLayers(nn.Module):
    """A weighted sum of all layers, with a weight for each."""

    def __init__(self, layers: int, hidden: int) -> None:
        super().__init__()
        self.features = hidden
        self.weights = nn.Parameter(torch.full((layers,), 1 / layers))

    def forward(self, states: Tensor, mask: Tensor, segments: Tensor) -> Tensor:
        return torch.einsum("blth,l->bth", states, self.weights)


folder = Path(tempfile.mkdtemp())
table = folder / "reviews.csv"
table.write_text("text,label\n" + "Warm bread and kind people,good\nCold soup and a long wait,bad\n" * 16)

# The default encoder has 6 layers, so 7 states with its embeddings, of 384 numbers.
pooler = WeighedLayers(layers=7, hidden=384)
result = bertvision.train(
    table,
    task="classification",
    heads="last_linear",
    poolers={"mine": pooler},
    settings={"heads": {"epochs": 2}},
    out=folder / "run",
)
print(result.scores["mine"])
result.save(folder / "my-model", "mine")
reader = bertvision.load(folder / "my-model", pooler=WeighedLayers(layers=7, hidden=384))
print(reader("Warm soup and kind people"))
