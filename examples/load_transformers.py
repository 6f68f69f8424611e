"""Weights of transformers from a bucket into a model: no file, and no copy on a disk.

    python examples/load_transformers.py
    python examples/load_transformers.py --model gs://BUCKET/MODEL

load_pretrained() takes the place of from_pretrained(), which knows only folders of this machine and names of the Hub. Without
--model it makes a small model with weights in several files, copies what save_pretrained() wrote to a bucket, loads that, and
compares."""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from typing import Any

import emulator
import torch
import transformers

import ringest
from ringest import safetensors


def load_weights(folder: str, client: ringest.Client) -> dict[str, torch.Tensor]:
    """All tensors of a folder as save_pretrained() writes it: of one file, or of those that an index names."""
    index = f"{folder}/model.safetensors.index.json"
    if not client.exists(index):
        return safetensors.load_file(f"{folder}/model.safetensors", client=client)
    files = set(json.loads(client.get(index).decode())["weight_map"].values())
    weights: dict[str, torch.Tensor] = {}
    for file in sorted(files):
        weights |= safetensors.load_file(f"{folder}/{file}", client=client)
    return weights


def load_pretrained(folder: str, client: ringest.Client, **options: Any) -> transformers.PreTrainedModel:
    """A model with its weights. Options are those of from_pretrained(), such as dtype=torch.bfloat16."""
    settings = json.loads(client.get(f"{folder}/config.json").decode())
    config = transformers.AutoConfig.for_model(**settings)
    kind = getattr(transformers, settings["architectures"][0])
    return kind.from_pretrained(None, config=config, state_dict=load_weights(folder, client), **options)


def make_model() -> transformers.PreTrainedModel:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=256,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        tie_word_embeddings=True,  # so that one tensor of the model is in no file
    )
    return transformers.LlamaForCausalLM(config).eval()


def upload(model: transformers.PreTrainedModel, folder: str, options: argparse.Namespace, ca: str | None) -> None:
    with tempfile.TemporaryDirectory() as made:
        model.save_pretrained(made, max_shard_size="100KB")
        command = [options.ringest, "cp", "-r", made + "/", folder, "--endpoint", options.endpoint]
        subprocess.run(command + (["--ca", ca] if ca else []), check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--model", metavar="URI", help="a folder in a bucket; default: a small one is made")
    emulator.add_options(parser)
    options = parser.parse_args()
    if options.model:
        with ringest.Client(options.endpoint, options.ca) as client:
            print(load_pretrained(options.model, client))
        return
    folder, made = "gs://examples/model", make_model()
    with emulator.endpoint(options, "--bucket", "examples") as (options.endpoint, ca):
        upload(made, folder, options, ca)
        with ringest.Client(options.endpoint, ca) as client:
            loaded = load_pretrained(folder, client).eval()
            files = sum(name.endswith(".safetensors") for name, _, _ in client.list(f"{folder}/"))
    text = torch.arange(16).unsqueeze(0)
    with torch.no_grad():
        same = torch.equal(made(text).logits, loaded(text).logits)
    count = sum(each.numel() for each in loaded.parameters())
    print(json.dumps({"files": files, "parameters": count, "same": same}))


if __name__ == "__main__":
    main()
