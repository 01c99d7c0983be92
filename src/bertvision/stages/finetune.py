"""The first stage: OUT/encoder/<fraction>, one folder per fraction, all from one run."""

import shutil
from pathlib import Path

from bertvision.encoder.encode import layers_of_output, shape_of_states
from bertvision.encoder.finetune import finetune_encoder, plan_steps, steps_of_fractions
from bertvision.encoder.load import Encoder, load_encoder
from bertvision.files import read_json, whole_folder, write_json
from bertvision.heads.head import Head
from bertvision.heads.training import build_heads
from bertvision.run_folder import is_made, resumable, sign
from bertvision.settings import Settings
from bertvision.stages.line import Line
from bertvision.stages.model_folder import OUTPUT_LAYER, load_head, read_model_config, save_encoder
from bertvision.training.checkpoint import fingerprint

TIMING = "timing.json"


def finetune(line: Line, seed: int) -> None:
    """Tune the encoder for every fraction that the run folder does not hold yet."""
    config, folder = line.experiment.finetune, line.folder(seed)
    wanted = {fraction: folder.encoder(fraction) for fraction in config.fractions}
    made = [is_made(place, _made_by(line, seed, fraction)) for fraction, place in wanted.items()]
    if all(made):
        return
    encoder, output = load_encoder(line.experiment.encoder), _output_layer(line, seed)
    unfinished = {**_made_by(line, seed, None), "device": line.compute.device.type}
    with resumable(folder.unfinished("finetune"), unfinished) as saved:
        missing = [fraction for fraction, is_there in zip(wanted, made, strict=True) if not is_there]
        if _is_past(saved, line, seed, missing):
            shutil.rmtree(saved)
        for checkpoint in finetune_encoder(
            encoder,
            output,
            line.train,
            config,
            seed=seed,
            compute=line.compute,
            objective=line.objective,
            saved=saved,
            progress=line.progress,
        ):
            if not wanted[checkpoint.fraction].exists():
                made_by = _made_by(line, seed, checkpoint.fraction)
                _save(line, wanted[checkpoint.fraction], encoder, output, made_by, checkpoint.seconds)


def _is_past(saved: Path, line: Line, seed: int, missing: list[float]) -> bool:
    """Tell whether a stopped training has gone past a fraction that is asked for now."""
    if not (saved / "position.json").exists():
        return False
    steps = plan_steps(line.train, line.experiment.finetune, seed, line.objective.group)
    done = read_json(saved / "position.json")["step"]
    return any(stop < done for _, stop in steps_of_fractions(missing, steps, len(line.train)))


def finetune_seconds(line: Line, seed: int, fraction: float | None) -> float:
    """Tell how long fine-tuning took up to a fraction."""
    if fraction is None:
        return 0.0
    seconds: float = read_json(line.folder(seed).encoder(fraction) / TIMING)["seconds"]
    return seconds


def _save(line: Line, place: Path, encoder: Encoder, output: Head, made_by: Settings, seconds: float) -> None:
    with whole_folder(place) as beside:
        config = line.model_config(OUTPUT_LAYER, ".", True, fingerprint(encoder.model))
        shape = shape_of_states(encoder, cls=output.cls)
        own = {"layers": shape.layers, "state_layers": layers_of_output(encoder, line.objective)}
        config = config.model_copy(update=own)
        save_encoder(beside, encoder, output, config)
        write_json(beside / TIMING, {"seconds": round(seconds, 3)})
        sign(beside, made_by)


def _output_layer(line: Line, seed: int) -> Head:
    if line.is_own_checkpoint():
        place = Path(line.experiment.encoder)
        return load_head(place, read_model_config(place))
    return build_heads([OUTPUT_LAYER], line.shape_for(OUTPUT_LAYER), seed, line.objective)[OUTPUT_LAYER.name]


def _made_by(line: Line, seed: int, fraction: float | None) -> Settings:
    config = line.experiment.finetune
    settings = config.model_dump(mode="json", exclude={"fractions", "save_every"})
    return line.made_by("finetune", seed, finetune=settings, horizon=config.horizon, fraction=fraction)
