# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""The PaliGemma-style tokenizer, from `tokenizer.json` or `tokenizer.model`. Never from the network."""

from collections.abc import Callable
from pathlib import Path

import sentencepiece
import tokenizers

from flashrt_kernels.checkpoint.fields import read_json
from flashrt_kernels.errors import CheckpointError

JSON_FILE = "tokenizer.json"
MODEL_FILE = "tokenizer.model"
CONFIG_FILE = "tokenizer_config.json"
_SPECIAL = {"bos": "<bos>", "eos": "<eos>", "pad": "<pad>"}


class Tokenizer:
    """Text → token ids, the first one BOS, none at the end.

    `source` is the file it came from, `size` one more than the largest id that `encode` can give.
    `vocab_size`: ids of the vocabulary itself, from whose end Pi0-FAST counts its actions.
    """

    def __init__(
        self,
        source: Path,
        encode: Callable[[str], list[int]],
        special: dict[str, int],
        size: int,
        vocab_size: int,
    ) -> None:
        self.source = source
        self.vocab_size = vocab_size
        self.bos_id = special["bos"]
        self.eos_id = special["eos"]
        self.pad_id = special["pad"]
        self.size = size
        self._encode = encode

    def encode(self, text: str) -> list[int]:
        """BOS and the ids of `text`, not padded, not cut."""
        return [self.bos_id, *self._encode(text)]


def find_tokenizer(folder: Path, elsewhere: str | Path | None) -> Path:
    """The tokenizer file in the checkpoint `folder`, else at `elsewhere` (a file or a folder).

    Raises `CheckpointError` naming every place that was looked at.
    """
    places = [folder / JSON_FILE, folder / MODEL_FILE]
    if elsewhere is not None:
        given = Path(elsewhere).expanduser()
        places += [given / JSON_FILE, given / MODEL_FILE] if given.is_dir() else [given]
    for place in places:
        if place.is_file():
            return place
    looked = ", ".join(str(place) for place in places)
    hint = "" if elsewhere is not None else "; put one there or give its path as `tokenizer`"
    raise CheckpointError(f"no tokenizer found, looked for {looked}{hint}")


def check_vocabulary(tokenizer: Tokenizer, folder: Path, rows: int) -> None:
    """Raises `CheckpointError` where ids go beyond the `rows` of the embedding table of `folder`."""
    if tokenizer.size > rows:
        raise CheckpointError(
            f"{tokenizer.source}: has ids up to {tokenizer.size - 1}, but the embedding table of {folder} "
            f"has {rows} rows; expected the tokenizer that the policy was trained with"
        )


def load_tokenizer(path: Path) -> Tokenizer:
    """Reads a `tokenizers` JSON or a sentencepiece model. Raises `CheckpointError` naming the file."""
    if path.suffix == ".json":
        return _from_json(path)
    if path.suffix == ".model":
        return _from_sentencepiece(path)
    raise CheckpointError(f"{path}: not a tokenizer, expected a file named {JSON_FILE} or {MODEL_FILE}")


def _from_json(path: Path) -> Tokenizer:
    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises nothing more specific
        raise CheckpointError(f"{path}: not a readable tokenizers file: {error}") from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    # An instruction is text: "<eos>" in it must not end the prompt, nor "<mask>" leave the embedding table.
    tokenizer.encode_special_tokens = True
    # Every prompt holds another state: the cache of whole prompts would never hit, and its small blocks
    # fragment the heap (136 MB in 2,000 decisions).
    if isinstance(tokenizer.model, tokenizers.models.BPE | tokenizers.models.Unigram):
        tokenizer.model._resize_cache(0)
    special = {}
    for role, token in _special_tokens(path).items():
        token_id = tokenizer.token_to_id(token)
        if token_id is None:
            raise CheckpointError(
                f"{path}: has no token {token}, expected the {role} token of the vocabulary"
            )
        special[role] = token_id
    plain = [i for i, token in tokenizer.get_added_tokens_decoder().items() if not token.special]
    size = max(*tokenizer.get_vocab(with_added_tokens=False).values(), *plain, *special.values()) + 1

    def encode(text: str) -> list[int]:
        return list(tokenizer.encode(text, add_special_tokens=False).ids)

    return Tokenizer(path, encode, special, size, tokenizer.get_vocab_size(with_added_tokens=False))


def _special_tokens(path: Path) -> dict[str, str]:
    """Role → token text, from tokenizer_config.json beside the file where there is one."""
    config = path.with_name(CONFIG_FILE)
    if not config.is_file():
        return dict(_SPECIAL)
    fields = read_json(config)
    names = {}
    for role, usual in _SPECIAL.items():
        key = f"{role}_token"
        try:
            names[role] = fields.string(key, default=usual)
        except CheckpointError:
            names[role] = fields.child(key).string("content")  # older files describe the token as an object
    return names


def _from_sentencepiece(path: Path) -> Tokenizer:
    try:
        model = sentencepiece.SentencePieceProcessor(model_proto=path.read_bytes())
    except (OSError, RuntimeError, ValueError) as error:
        raise CheckpointError(f"{path}: not a readable sentencepiece model: {error}") from error
    special = {"bos": model.bos_id(), "eos": model.eos_id(), "pad": model.pad_id()}
    for role, token_id in special.items():
        if token_id < 0:
            raise CheckpointError(f"{path}: has no {role} token, expected one as PaliGemma's tokenizer has")

    def encode(text: str) -> list[int]:
        return list(model.encode(text, add_bos=False, add_eos=False))

    return Tokenizer(path, encode, special, model.get_piece_size(), model.get_piece_size())
