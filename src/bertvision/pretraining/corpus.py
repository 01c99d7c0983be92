"""Documents -> a vocabulary and the numbers of all tokens, on the disk once and mapped into memory from there.

A folder holds `vocabulary` (a tokenizer as Hugging Face saves it), and `train` and `held_out` with three flat files
each: the tokens' numbers, and where sentences and documents begin among them.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from io import BufferedWriter
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.trainers import WordPieceTrainer
from transformers import BertTokenizerFast, PreTrainedTokenizerBase  # type: ignore[attr-defined]

from bertvision.data.documents import files_of, read_documents, sentences_of
from bertvision.encoder.load import load_tokenizer, quiet_transformers
from bertvision.errors import DataError, EncoderError, FolderError, SettingsError, told_as
from bertvision.files import exists, locked, make_folder, read_json, whole_folder
from bertvision.manifest import check_manifest, write_manifest
from bertvision.pretraining.config import LEAST_PIECES, CorpusConfig, PretrainConfig, VocabularyConfig
from bertvision.progress import SILENT, Progress
from bertvision.run_folder import SETTINGS_FINGERPRINT, is_made, write_settings
from bertvision.settings import Settings
from bertvision.training.distributed import ALONE, Processes

Int64s = npt.NDArray[np.int64]
SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
VOCABULARY, TRAIN, HELD_OUT = "vocabulary", "train", "held_out"
IDS, SENTENCES, DOCUMENTS = FILES = ("ids.bin", "sentences.bin", "documents.bin")
ALPHABET = 1000  # letters that a vocabulary keeps at most, as BERT's; rarer ones are [UNK]
SENTENCES_PER_CALL = 4096  # handed to the tokenizer at once: enough for its threads


class Corpus(NamedTuple):
    """The tokens of documents, and where sentences and documents begin among them; both end with the number of all."""

    ids: npt.NDArray[Any]
    sentences: Int64s
    documents: Int64s

    @property
    def num_documents(self) -> int:
        """Count the documents."""
        return len(self.documents) - 1


@dataclass(frozen=True)
class Vocabulary:
    """A tokenizer, and what masking asks of its tokens."""

    tokenizer: PreTrainedTokenizerBase

    @cached_property
    def size(self) -> int:
        """Count the tokens."""
        return len(self.tokenizer)

    @cached_property
    def ordinary(self) -> Int64s:
        """Return the numbers of all tokens that are not special."""
        return np.setdiff1d(np.arange(self.size), self.tokenizer.all_special_ids)

    @cached_property
    def continues(self) -> npt.NDArray[np.bool_]:
        """Return, for every token, whether it goes on with a word that an earlier one began."""
        pieces = self.tokenizer.convert_ids_to_tokens(list(range(self.size)))
        return np.array([piece.startswith("##") for piece in pieces])

    def id_of(self, token: str) -> int:
        """Return the number of a special token, such as [MASK]."""
        number = self.tokenizer.convert_tokens_to_ids(token)
        assert isinstance(number, int)
        return number


class Prepared(NamedTuple):
    """What a pre-training reads."""

    vocabulary: Vocabulary
    train: Corpus
    held_out: Corpus | None  # None: there was one document only


def prepare_corpus(
    config: PretrainConfig, folder: Path, progress: Progress = SILENT, processes: Processes = ALONE
) -> Prepared:
    """Return vocabulary and tokens; make them where the folder does not hold them yet, all or nothing.

    The text itself may be gone by then. Of several processes the main one makes them.
    """
    processes.agreed(lambda: _make_once(config, folder, progress))
    return open_corpus(folder)


def check_text(config: PretrainConfig, folder: Path) -> None:
    """Refuse a folder that was made of another text."""
    is_made(folder, _settings_fingerprint(config, folder))


def _settings_fingerprint(config: PretrainConfig, folder: Path) -> Settings:
    return {**config.data_settings(), "bytes": _sizes(config.data, folder)}


def _make_once(config: PretrainConfig, folder: Path, progress: Progress) -> None:
    settings_fingerprint = _settings_fingerprint(config, folder)
    make_folder(folder.parent)
    with locked(folder.parent, folder.name):
        if not is_made(folder, settings_fingerprint):
            with whole_folder(folder) as beside:
                _make(config, beside, settings_fingerprint, progress)
        for part in (VOCABULARY, TRAIN, HELD_OUT):
            check_manifest(folder / part)


def open_corpus(folder: Path) -> Prepared:
    """Map what `prepare_corpus` made, and checked, into memory."""
    with quiet_transformers(), told_as(EncoderError, f"{folder / VOCABULARY}: cannot be read"):
        tokenizer = BertTokenizerFast.from_pretrained(folder / VOCABULARY, local_files_only=True)
    dtype = _number_format(len(tokenizer))
    held_out = _map(folder / HELD_OUT, dtype) if (folder / HELD_OUT / IDS).exists() else None
    return Prepared(Vocabulary(tokenizer), _map(folder / TRAIN, dtype), held_out)


def _make(config: PretrainConfig, folder: Path, settings_fingerprint: Settings, progress: Progress) -> None:
    tokenizer = _given(config.vocabulary.encoder) if config.vocabulary.encoder else _train(config, progress)
    with quiet_transformers():
        tokenizer.save_pretrained(folder / VOCABULARY)
    write_manifest(folder / VOCABULARY)
    progress.say("cutting the text into tokens")
    counts = _write_all(config.data, tokenizer, folder)
    for name, sources in ((TRAIN, config.data.train), (HELD_OUT, config.data.held_out)):
        if sources and not counts[name]:
            raise _without_text(name, sources)
    told = [f"{name.replace('_', ' ')}: {tokens:,} tokens" for name, tokens in counts.items() if tokens]
    progress.say("; ".join([f"vocabulary: {len(tokenizer):,}", *told]))
    write_settings(folder, settings_fingerprint)


def _train(config: PretrainConfig, progress: Progress) -> PreTrainedTokenizerBase:
    """Train a vocabulary on the text."""
    progress.say("training the vocabulary")
    if not any(document.strip() for document in _read_train(config.data)):
        raise _without_text(TRAIN, config.data.train)
    return train_vocabulary(lambda: _read_train(config.data), config.vocabulary)


def _read_train(config: CorpusConfig) -> Iterator[str]:
    return read_documents(config.train, config.text_column, without=config.held_out)


def _without_text(name: str, sources: Sequence[str]) -> DataError:
    return DataError(f"{', '.join(sources)}: no text in it; give documents with words for data.{name}")


def train_vocabulary(read: Callable[[], Iterable[str]], config: VocabularyConfig) -> PreTrainedTokenizerBase:
    """Train a WordPiece vocabulary of just the size that is asked for, the same from the same documents."""
    learner = Tokenizer(WordPiece(unk_token="[UNK]"))  # noqa: S106 (no password)
    backend = BertTokenizerFast(
        vocab={token: number for number, token in enumerate(SPECIAL_TOKENS)}, do_lower_case=not config.cased
    ).backend_tokenizer
    learner.normalizer, learner.pre_tokenizer = backend.normalizer, backend.pre_tokenizer
    trainer = WordPieceTrainer(
        vocab_size=config.size,
        min_frequency=2,  # of a pair of pieces that is joined
        # Letters inside of words are numbered here: the trainer would number them as its threads come across them, and
        # decides by their numbers which of two equally common pairs is joined first.
        special_tokens=[*SPECIAL_TOKENS, *(f"##{letter}" for letter in _letters(read(), learner))],
        limit_alphabet=ALPHABET,
        show_progress=False,
    )
    learner.train_from_iterator(read(), trainer)
    vocabulary = learner.get_vocab()
    if len(vocabulary) < config.size:
        smaller = f", or `vocabulary.size={len(vocabulary)}`" if len(vocabulary) >= LEAST_PIECES else ""
        raise DataError(
            f"the text gives a vocabulary of {len(vocabulary):,} pieces, and vocabulary.size is {config.size:,}; give "
            f"more text{smaller}"
        )
    tokenizer: PreTrainedTokenizerBase = BertTokenizerFast(vocab=vocabulary, do_lower_case=not config.cased)
    return tokenizer


def _letters(documents: Iterable[str], learner: Tokenizer) -> list[str]:
    """Return the commonest letters and digits that words are made of, in order."""
    counts: Counter[str] = Counter()
    for document in documents:
        counts.update(document)
    normal: Counter[str] = Counter()
    for letter, count in counts.items():
        found = learner.normalizer.normalize_str(letter)
        if letter.isalnum() and found == found.strip():  # a Chinese one gets blanks around it: a word of its own
            normal.update(dict.fromkeys(found, count))
    kept = sorted(normal, key=lambda letter: (-normal[letter], letter))[:ALPHABET]
    return sorted(letter for letter in kept if letter.isalnum())


def _given(name: str) -> PreTrainedTokenizerBase:
    """Take an encoder's vocabulary; refuse one that has no word pieces or lacks what BERT's rows are made of."""
    tokenizer = load_tokenizer(name)
    backend = getattr(tokenizer, "backend_tokenizer", None)
    lacking = [token for token in SPECIAL_TOKENS if token not in tokenizer.get_vocab()]
    if backend is None or not isinstance(backend.model, WordPiece) or lacking:
        why = f"lacks {lacking[0]}" if lacking else "has no word pieces"
        raise SettingsError(
            f"vocabulary.encoder: the vocabulary of {name!r} {why}; give an encoder of BERT's kind, or leave it out"
        )
    normalizer = backend.normalizer
    own: PreTrainedTokenizerBase = BertTokenizerFast(
        vocab=tokenizer.get_vocab(),
        do_lower_case=getattr(normalizer, "lowercase", True),
        strip_accents=getattr(normalizer, "strip_accents", None),
    )
    return own


def _write_all(config: CorpusConfig, tokenizer: PreTrainedTokenizerBase, folder: Path) -> dict[str, int]:
    """Write the tokens of all documents; return how many there are of each part."""
    parts = {name: _Writer(folder / name, tokenizer) for name in (TRAIN, HELD_OUT)}
    try:
        for name, document in _parted(config):
            parts[name].add(document)
        for writer in parts.values():
            writer.finish()
    finally:
        for writer in parts.values():
            writer.close()
    return {name: writer.num_tokens for name, writer in parts.items()}


def _parted(config: CorpusConfig) -> Iterator[tuple[str, str]]:
    """Return every document with the part that it belongs to."""
    if config.held_out:
        yield from ((TRAIN, document) for document in _read_train(config))
        yield from ((HELD_OUT, document) for document in read_documents(config.held_out, config.text_column))
        return
    number, last = 0, ""
    for number, document in enumerate(_read_train(config), start=1):
        if number > 1:
            yield TRAIN if (number - 1) % config.held_out_every else HELD_OUT, last
        last = document
    if number:
        is_held_out = 1 < number <= config.held_out_every or number % config.held_out_every == 0
        yield HELD_OUT if is_held_out else TRAIN, last


class _Writer:
    """Writes the tokens of documents into three flat files, which are there as soon as the first document is."""

    def __init__(self, folder: Path, tokenizer: PreTrainedTokenizerBase) -> None:
        self._folder, self._tokenizer = folder, Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
        self._tokenizer.encode_special_tokens = True  # "[MASK]" in a text is a word of it
        self._files: list[BufferedWriter] = []
        self._sizes = [0, 0, 0]  # bytes that each file was given
        self._dtype = _number_format(len(tokenizer))
        self.num_tokens = 0

    def add(self, document: str) -> None:
        """Write one document; what has no words leaves nothing."""
        lengths, sentences = [], iter(sentences_of(document))
        start = self.num_tokens
        while some := list(islice(sentences, SENTENCES_PER_CALL)):
            found = [each.ids for each in self._tokenizer.encode_batch_fast(some, add_special_tokens=False)]
            lengths += [len(each) for each in found if each]
            self._append(0, np.array([number for each in found for number in each], dtype=self._dtype))
        if lengths:
            self.num_tokens += sum(lengths)
            self._append(1, start + np.cumsum([0, *lengths[:-1]], dtype=np.int64))
            self._append(2, np.array([start], dtype=np.int64))

    def close(self) -> None:
        """Close the files; what was buffered may only now find the disk full."""
        for file in self._files:
            file.close()

    def finish(self) -> None:
        """End all files with the number of tokens, and write down their hashes; refuse one that was cut short."""
        if not self._files:
            return
        for place in (1, 2):
            self._append(place, np.array([self.num_tokens], dtype=np.int64))
        self.close()
        for name, expected in zip(FILES, self._sizes, strict=True):
            if (size := (self._folder / name).stat().st_size) != expected:
                raise FolderError(
                    f"{self._folder / name}: {size:,} bytes of {expected:,} were written; check the disk, and give the "
                    "same command again"
                )
        write_manifest(self._folder)

    def _append(self, place: int, values: npt.NDArray[Any]) -> None:
        if not self._files and len(values):
            make_folder(self._folder)
            self._files = [(self._folder / name).open("wb") for name in FILES]
        if len(values):
            # Not `values.tofile`, which ignores that the last bytes find no room.
            self._sizes[place] += self._files[place].write(values.tobytes())


def _map(folder: Path, dtype: type[np.uint16] | type[np.uint32]) -> Corpus:
    """Map the three files into memory."""
    sentences, documents = (np.memmap(folder / name, dtype=np.int64, mode="r") for name in (SENTENCES, DOCUMENTS))
    return Corpus(np.memmap(folder / IDS, dtype=dtype, mode="r"), sentences, documents)


def _number_format(size: int) -> type[np.uint16] | type[np.uint32]:
    """Return the smallest format that holds the numbers of so many tokens."""
    return np.uint16 if size <= 1 << 16 else np.uint32


def _sizes(config: CorpusConfig, folder: Path) -> dict[str, int]:
    """Return the sizes of all files, by which another text under the same name is known; those gone keep theirs."""
    before: Settings = read_json(folder / SETTINGS_FINGERPRINT) if (folder / SETTINGS_FINGERPRINT).exists() else {}
    sizes: dict[str, int] = {}
    for source in (*config.train, *config.held_out):
        if exists(source):
            sizes |= {str(path): path.stat().st_size for path in files_of(source)}
        else:
            known = before.get("bytes", {}).items()
            sizes |= {path: size for path, size in known if Path(path).is_relative_to(source)}
    return sizes
