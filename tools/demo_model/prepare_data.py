"""Mix the texts, train the tokenizer and encode everything for ``train.py``.

Writes to ``--out``:

- ``tokenizer.json``, ``tokenizer_config.json``
- ``train.jsonl``: the training documents in their final order, ``{"text", "source"}``
- ``heldout_stories.jsonl``, ``heldout_maths.jsonl``: documents that are never trained on
- ``train.npz``: ``ids`` (uint16; every document is followed by ``<|endoftext|>``) and
  ``starts`` (offset of every document)
- ``data.json``: sizes and settings
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

import numpy as np
from tokenizer import END_OF_TEXT, train_tokenizer

CALCULATION = re.compile(r"<<[^<>]*>>")


def read_jsonl(path: Path) -> list[dict]:
    with path.open(encoding="utf-8") as f:
        return [json.loads(line) for line in f if line.strip()]


def write_jsonl(path: Path, records: list[dict]) -> None:
    with path.open("w", encoding="utf-8") as f:
        for record in records:
            f.write(json.dumps(record, ensure_ascii=False) + "\n")


def maths_text(record: dict, prefixed: bool) -> str:
    """A question and its worked answer, without the calculator annotations."""
    question = record["question"].strip()
    answer = CALCULATION.sub("", record["answer"]).strip()
    return f"Question: {question}\nAnswer: {answer}" if prefixed else f"{question}\n{answer}"


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--stories", type=Path, nargs="+", required=True, help="sampled JSON lines")
    ap.add_argument("--maths", type=Path, required=True, help="GSM8K-style JSON lines")
    ap.add_argument("--maths-heldout", type=int, default=100, help="last records, never trained on")
    ap.add_argument("--maths-epochs", type=int, default=3, help="copies of every maths record")
    ap.add_argument("--stories-heldout", type=float, default=0.01, help="fraction")
    ap.add_argument("--vocab", type=int, default=2048)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--out", type=Path, required=True)
    args = ap.parse_args()

    rng = np.random.default_rng(args.seed)
    stories = list(dict.fromkeys(r["text"] for path in args.stories for r in read_jsonl(path)))
    stories = [stories[i] for i in rng.permutation(len(stories))]
    n_held = round(len(stories) * args.stories_heldout)
    records = read_jsonl(args.maths)
    maths, maths_held = records[: -args.maths_heldout], records[-args.maths_heldout :]

    documents = [{"text": t, "source": "story"} for t in stories[n_held:]]
    for epoch in range(args.maths_epochs):
        documents += [
            {"text": maths_text(r, (i + epoch) % 2 == 0), "source": "maths"}
            for i, r in enumerate(maths)
        ]
    documents = [documents[i] for i in rng.permutation(len(documents))]
    held = {
        "stories": [{"text": t, "source": "story"} for t in stories[:n_held]],
        "maths": [
            {"text": maths_text(r, i % 2 == 0), "source": "maths"} for i, r in enumerate(maths_held)
        ],
    }

    tok = train_tokenizer((d["text"] for d in documents), args.vocab)
    end = tok.token_to_id(END_OF_TEXT)
    encoded = [[*e.ids, end] for e in tok.encode_batch([d["text"] for d in documents])]
    starts = np.cumsum([0] + [len(ids) for ids in encoded])

    args.out.mkdir(parents=True, exist_ok=True)
    tok.save(str(args.out / "tokenizer.json"))
    tok_config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": END_OF_TEXT,
        "pad_token": END_OF_TEXT,
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": 2048,
    }
    (args.out / "tokenizer_config.json").write_text(json.dumps(tok_config, indent=2) + "\n")
    write_jsonl(args.out / "train.jsonl", documents)
    for name, docs in held.items():
        write_jsonl(args.out / f"heldout_{name}.jsonl", docs)
    np.savez(
        args.out / "train.npz",
        ids=np.concatenate([np.asarray(e, np.uint16) for e in encoded]),
        starts=starts[:-1],
    )

    def size(docs: list[dict], source: str) -> int:
        return sum(len(d["text"].encode()) for d in docs if d["source"] == source)

    data = {
        "seed": args.seed,
        "vocabulary": args.vocab,
        "train_documents": len(documents),
        "train_tokens": int(starts[-1]),
        "train_story_bytes": size(documents, "story"),
        "train_maths_bytes": size(documents, "maths"),
        "maths_epochs": args.maths_epochs,
        "heldout_stories": n_held,
        "heldout_story_bytes": size(held["stories"], "story"),
        "heldout_maths": len(maths_held),
        "heldout_maths_bytes": size(held["maths"], "maths"),
    }
    (args.out / "data.json").write_text(json.dumps(data, indent=2) + "\n")
    print(json.dumps(data, indent=2))


if __name__ == "__main__":
    main()
