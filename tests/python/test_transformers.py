"""examples/load_transformers.py: models of transformers with weights from a bucket."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import types
import unittest

import torch

import ringest
import support
from ringest import safetensors

EXAMPLES = pathlib.Path(os.environ["RINGEST_TESTS"]).parent / "examples"
FOLDER = "gs://trials/model"


def load_example() -> types.ModuleType:
    sys.path.append(str(EXAMPLES))
    spec = importlib.util.spec_from_file_location("load_transformers", EXAMPLES / "load_transformers.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Transformers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        place = cls.enterClassContext(support.emulator(buckets=("trials",)))
        cls.client = cls.enterClassContext(ringest.Client(*place))
        cls.example = load_example()

    def put(self, model):
        """As one file, which ringest.safetensors writes; a tied tensor is in it once."""
        weights = {name: each for name, each in model.state_dict().items() if name != "lm_head.weight"}
        safetensors.save_file(weights, f"{FOLDER}/model.safetensors", client=self.client)
        model.config.architectures = [type(model).__name__]
        self.client.put(f"{FOLDER}/config.json", model.config.to_json_string().encode())

    def test_a_model_in_several_files_computes_the_same(self):
        command = [sys.executable, "-B", str(EXAMPLES / "load_transformers.py"), "--ringest", support.PROGRAM]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        said = json.loads(done.stdout)
        self.assertGreater(said["files"], 1)
        self.assertTrue(said["same"])

    def test_a_model_in_one_file_is_what_was_saved(self):
        made = self.example.make_model()
        self.put(made)
        loaded = self.example.load_pretrained(FOLDER, self.client)
        self.assertIs(type(loaded), type(made))
        for name, each in made.state_dict().items():
            self.assertTrue(torch.equal(loaded.state_dict()[name], each), name)
        self.assertEqual(loaded.lm_head.weight.data_ptr(), loaded.get_input_embeddings().weight.data_ptr())

    def test_options_are_those_of_from_pretrained(self):
        self.put(self.example.make_model())
        loaded = self.example.load_pretrained(FOLDER, self.client, dtype=torch.bfloat16)
        self.assertEqual({each.dtype for each in loaded.parameters()}, {torch.bfloat16})

    def test_weights_come_into_a_model_that_has_none(self):
        """As FSDP and large models do it: parameters on no device, then those of the file themselves."""
        made = self.example.make_model()
        self.put(made)
        with torch.device("meta"):
            empty = type(made)(made.config)
        weights = self.example.load_weights(FOLDER, self.client)
        missing = empty.load_state_dict(weights, strict=False, assign=True).missing_keys
        empty.tie_weights()
        self.assertEqual(missing, ["lm_head.weight"])
        for name, each in made.state_dict().items():
            self.assertTrue(torch.equal(empty.state_dict()[name], each), name)

    def test_what_is_missing_is_named(self):
        self.put(self.example.make_model())
        self.client.delete(f"{FOLDER}/model.safetensors")
        with self.assertRaisesRegex(ringest.NotFoundError, f"{FOLDER}/model.safetensors"):
            self.example.load_pretrained(FOLDER, self.client)
        with self.assertRaisesRegex(ringest.NotFoundError, "gs://trials/other/config.json"):
            self.example.load_pretrained("gs://trials/other", self.client)


if __name__ == "__main__":
    unittest.main()
