"""The verb that writes a model for onnxruntime."""

from pathlib import Path
from typing import Annotated

import typer

from bertvision.cli.console import in_one_line, print_json, results
from bertvision.cli.options import Json


@in_one_line
def export(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="OUT/heads/FRACTION/HEAD, OUT/encoder/FRACTION or a saved model.")
    ],
    onnx: Annotated[Path, typer.Option("--onnx", metavar="DIR", help="The new folder to write.")],
    int8: Annotated[bool, typer.Option("--int8", help="Round products to int8: smaller, faster, less exact.")] = False,
    as_json: Json = False,
) -> None:
    """Write a model as one ONNX graph.

    DIR holds encoder and head as one graph for any batch and length, the tokenizer, settings, calibration and card:
    all that bertvision.load, ask and serve need to run it with onnxruntime, without importing torch. The graph's logits
    are compared with PyTorch's on random batches first, and nothing is written where they differ by more than 1e-4.
    """
    from bertvision.serving.onnx_export import export_onnx

    found = export_onnx(model, onnx, int8=int8)
    if as_json:
        print_json(found.as_dict())
        return
    results.print(f"{found.folder}: {found.bytes / 1e6:.1f} MB", markup=False)
    for line in found.as_lines():
        results.print(line, markup=False)
