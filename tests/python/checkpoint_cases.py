"""What ringest.retention and `ringest ckpt prune` do with folders of every popular kind: one table for both.

A case has objects (names, or names with their bytes), how many steps are kept, what is to go, and why some of the rest
stays. Objects are two days old but for those called young."""

SAVE = ".0123456789abcdef"
OTHER = ".fedcba9876543210"


def dcp(folder, *data, ending=".distcp", metadata=".metadata", there=True):
    """A distributed checkpoint: metadata that names data, and the data."""
    named = [f"__{each}{ending}" for each in data or ("0_0", "1_0")]
    found = {f"{folder}/{metadata}": b"\x80\x05" + b"\x94".join(b"\x8c\x20" + each.encode() for each in named) + b"."}
    return {**found, **({f"{folder}/{each}": b"12345" for each in named} if there else {})}


def trainer(folder, *more, best=None, lacks=()):
    """What a Trainer of Hugging Face writes."""
    found = dict.fromkeys(
        ("config.json", "model.safetensors", "optimizer.pt", "rng_state_0.pth", "rng_state_1.pth", "scheduler.pt",
         "trainer_state.json", "training_args.bin", *more),
        b"1",
    )  # fmt: skip
    state = f'{{"best_metric": null, "best_model_checkpoint": "{best}"}}' if best else '{"best_model_checkpoint": null}'
    found["trainer_state.json"] = state.encode()
    return {f"{folder}/{name}": data for name, data in found.items() if name not in lacks}


def deepspeed(folder):
    names = ["mp_rank_00_model_states.pt"] + [f"zero_pp_rank_{i}_mp_rank_00_optim_states.pt" for i in range(2)]
    return {f"{folder}/{name}": b"1" for name in names}


def files(*names):
    return dict.fromkeys(names, b"1")


def orbax(folder):
    return files(
        f"{folder}/_CHECKPOINT_METADATA", f"{folder}/commit_success.txt", f"{folder}/state/_METADATA",
        f"{folder}/state/manifest.ocdbt", f"{folder}/state/ocdbt.process_0/d/0123456789abcdef",
    )  # fmt: skip


def megatron(folder):
    return {**dcp(folder), **files(f"{folder}/common.pt", f"{folder}/metadata.json")}


NO_STEP = "its name says no step"
UNKNOWN = "no known layout"

# fmt: off
CASES = {
    "the last steps of files": {
        "objects": files(*(f"step-{i}.pt" for i in (1, 2, 9, 10, 30)), "notes.txt"),
        "keep_last": 2,
        "removed": ["step-1.pt", "step-2.pt", "step-9.pt"],
        "reasons": {"step-10.pt": r"one of the last 2 of step-#\.pt", "step-30.pt": "one of the last"},
    },
    "every so many steps": {
        "objects": files(*(f"{i}.pt" for i in (5, 10, 15, 20, 25))),
        "keep_last": 1,
        "keep_every": 10,
        "removed": ["5.pt", "15.pt"],
        "reasons": {"10.pt": "multiple of 10"},
    },
    "names without a step": {
        "objects": files(
            "last.ckpt", "last-v1.ckpt", "last-v2.ckpt", "best.pt", "best-v2.ckpt", "best-v3.ckpt", "resnet50.pt",
            "resnet101.pt", "llama-7b.safetensors", "llama-13b.safetensors", "rng_state_0.pth", "rng_state_1.pth",
            "model-step-1.pt", "model-step-2.pt", "epoch=1.ckpt", "epoch=2.ckpt", "checkpoint_1.pt", "step-1-v1.pt",
            "step1-final.pt", "v2-70.safetensors", "ep1-ba10-rank0.pt", "step-1.bin", "step-99999999999999999999.pt",
            "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "Step-1.pt", "step--1.pt",
        ),
        "keep_last": 1,
        "removed": [],
        "reasons": {"last-v1.ckpt": NO_STEP, "resnet50.pt": NO_STEP, "model-00001-of-00002.safetensors": NO_STEP},
    },
    "each way to write a step is a series": {
        "objects": files(
            *(f"{pattern}{i}{ending}" for i in (1, 2) for ending in (".pt", ".safetensors")
              for pattern in ("step", "step-", "step=", "step_", "", "global_step", "global_step-", "checkpoint-")),
        ),
        "keep_last": 1,
        "removed": [
            f"{pattern}1{ending}" for ending in (".pt", ".safetensors")
            for pattern in ("step", "step-", "step=", "step_", "", "global_step", "global_step-", "checkpoint-")
        ],
    },
    "Lightning's names and versions": {
        "objects": files(
            "epoch=0-step=10.ckpt", "epoch=0-step=10-v1.ckpt", "epoch=1-step=20.ckpt", "epoch=1-step=20-v1.ckpt",
            "epoch=1-step=20-v2.ckpt", "epoch=2-step=30.ckpt", "last.ckpt", "last-v1.ckpt", "step=30.ckpt",
            "step=30-v1.ckpt", "step=40.ckpt", "epoch=2-step=30-val_loss=0.25.ckpt", "epoch=2-step=30-v1-v2.ckpt",
            "step-5.pt", "step-6.pt",
        ),
        "keep_last": 2,
        "removed": ["epoch=0-step=10.ckpt", "epoch=0-step=10-v1.ckpt"],
        "reasons": {"epoch=2-step=30-val_loss=0.25.ckpt": NO_STEP},
    },
    "leading zeros": {"objects": files("step_0009.pt", "step_0010.pt", "step_8.pt"), "keep_last": 2, "removed": ["step_8.pt"]},
    "each folder by itself": {
        "objects": files("a/1.pt", "a/2.pt", "b/1.pt", "b/c/1.pt", "b/c/3.pt"),
        "keep_last": 1,
        "removed": ["a/1.pt", "b/c/1.pt"],
    },
    "a prefix that is a part of names": {
        "objects": files("run/step-1.pt", "run/step-2.pt", "run/stop-1.pt", "other/step-1.pt", "run/1.pt", "run/2.pt"),
        "prefix": "run/st",
        "keep_last": 1,
        "removed": ["run/step-1.pt"],
    },
    "distributed checkpoints": {
        "objects": {
            **dcp("run/step-1", ending=SAVE + ".distcp"), **dcp("run/step-2"), **dcp("run/step-3", ending=SAVE + ".distcp"),
            "run/step-1/meta.pt": b"1", "run/step-2/.metadata.tmp": b"1", **dcp("run/last"),
            **dcp("run/step-4", "0_0", metadata="__0.metadata", ending=SAVE + ".rank.distcp"), "run/notes.txt": b"1",
        },
        "keep_last": 2,
        "removed": ["run/step-1", "run/step-2"],
        "reasons": {"run/last": NO_STEP},
    },
    "a folder with anything foreign stays whole": {
        "objects": {
            **dcp("step-1"), **dcp("step-2"), **dcp("step-3"), **dcp("step-4"), "step-1/notes.txt": b"1",
            "step-2/sub/7.pt": b"1",
            **trainer("checkpoint-1", "modeling_llama.py"), **trainer("checkpoint-2"), **trainer("checkpoint-3"),
        },
        "keep_last": 1,
        "removed": ["step-3", "checkpoint-2"],
        "reasons": {"step-1": r"notes\.txt", "step-2": r"sub/7\.pt", "checkpoint-1": r"modeling_llama\.py"},
    },
    "incomplete ones neither count nor go": {
        "objects": {
            **dcp("step-1"), **dcp("step-2"), **dcp("step-3", there=False), **files("step-4/__0_0.distcp"),
            **dcp("step-0", there=False), "step-0/__0_0.distcp": b"1",
        },
        "keep_last": 1,
        "removed": ["step-1"],
        "reasons": {"step-3": r"__0_0\.distcp is missing", "step-4": "not complete$", "step-0": r"__1_0\.distcp is missing"},
    },
    "folders of a Trainer": {
        "objects": {
            **trainer("out/checkpoint-500"), **trainer("out/checkpoint-1000", "tokenizer.json", "vocab.json"),
            **trainer("out/checkpoint-1500", "tokenizer.json", "vocab.json", "README.md"), "out/config.json": b"1",
            "out/model.safetensors": b"1", "out/runs/Jan01/events.out.tfevents.1.host.1.0": b"1",
        },
        "keep_last": 2,
        "removed": ["out/checkpoint-500"],
    },
    "the best one of a Trainer": {
        "objects": {
            **trainer("checkpoint-1"), **trainer("checkpoint-2"), **trainer("checkpoint-3", best="out/checkpoint-1"),
        },
        "keep_last": 1,
        "removed": ["checkpoint-2"],
        "reasons": {"checkpoint-1": r"checkpoint-3/trainer_state\.json names it as the best"},
    },
    "the best one by a path of Windows": {
        "objects": {
            **trainer("checkpoint-1"), **trainer("checkpoint-2"), **trainer("checkpoint-3", best="out\\\\checkpoint-2\\\\"),
        },
        "keep_last": 1,
        "removed": ["checkpoint-1"],
    },
    "a Trainer's folder that is not all there": {
        "objects": {
            **trainer("checkpoint-1"), **trainer("checkpoint-2"), **trainer("checkpoint-3", lacks=["optimizer.pt"]),
            **trainer("checkpoint-4", lacks=["model.safetensors"]),
            **trainer("checkpoint-5", lacks=["trainer_state.json"]),
            **trainer("checkpoint-6", "model-00001-of-00003.safetensors", "model-00003-of-00003.safetensors",
                      "model.safetensors.index.json", lacks=["model.safetensors"]),
        },
        "keep_last": 1,
        "removed": ["checkpoint-1"],
        "reasons": {
            "checkpoint-3": r"optimizer\.pt is missing", "checkpoint-4": r"model\.safetensors is missing",
            "checkpoint-5": UNKNOWN, "checkpoint-6": r"model-00002-of-00003\.safetensors is missing",
        },
    },
    "weights in parts, and fewer processes": {
        "objects": {
            **trainer("checkpoint-1"),
            **trainer("checkpoint-2", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                      "model.safetensors.index.json", lacks=["model.safetensors", "rng_state_1.pth"]),
            **trainer("checkpoint-3", "adapter_model.safetensors", "adapter_config.json", "model.safetensors.index.json",
                      "rng_state.pth", lacks=["model.safetensors", "rng_state_0.pth", "rng_state_1.pth"]),
        },
        "keep_last": 1,
        "removed": ["checkpoint-1", "checkpoint-2"],
    },
    "a Trainer with FSDP": {
        "objects": {
            **{name: data for i in (1, 2, 3, 4) for name, data in {
                **trainer(f"checkpoint-{i}", lacks=["model.safetensors", "optimizer.pt"]),
                **dcp(f"checkpoint-{i}/pytorch_model_fsdp_0", there=i != 3),
                **dcp(f"checkpoint-{i}/optimizer_0")}.items() if name != "checkpoint-4/optimizer_0/.metadata"},
        },
        "keep_last": 1,
        "removed": ["checkpoint-1"],
        "reasons": {
            "checkpoint-3": r"pytorch_model_fsdp_0/__0_0\.distcp is missing",
            "checkpoint-4": r"optimizer_0/\.metadata is missing",
        },
    },
    "a Trainer with DeepSpeed": {
        "objects": {
            **{name: data for i in (1, 2) for name, data in {
                **trainer(f"checkpoint-{i}", "latest", "zero_to_fp32.py", *["zero_to_torch.py"] * (i == 1),
                          lacks=["model.safetensors", "optimizer.pt"]),
                **deepspeed(f"checkpoint-{i}/global_step{i}")}.items()},
        },
        "keep_last": 1,
        "removed": ["checkpoint-1"],
    },
    "DeepSpeed": {
        "objects": {
            **{name: data for i in (1, 2, 3, 4) for name, data in deepspeed(f"run/global_step{i}").items()},
            "run/latest": b"global_step3\n", "run/zero_to_fp32.py": b"1",
        },
        "keep_last": 1,
        "removed": ["run/global_step1", "run/global_step2"],
        "reasons": {"run/global_step4": "latest"},
    },
    "DeepSpeed without a word of the last one": {
        "objects": {name: data for i in (1, 2, 3) for name, data in deepspeed(f"global_step{i}").items()},
        "keep_last": 1,
        "removed": [],
        "reasons": {"global_step1": "not complete"},
    },
    "DeepSpeed whose new one lacks something": {
        "objects": {
            **deepspeed("global_step1"), **files("global_step2/mp_rank_00_model_states.pt"), "latest": b"global_step2",
        },
        "keep_last": 1,
        "removed": [],
        "reasons": {"global_step2": r"zero_pp_rank_#_mp_rank_#_optim_states\.pt is missing"},
    },
    "what a pointer beside them names": {
        "objects": {
            **files("step-1.pt", "step-10.pt", "step-2.pt", "step-3.pt", "last.txt", "latest_checkpoint"),
            "last.txt": b"see step-2.pt", "latest_checkpoint": b"step-100.pt step-1.pt2", **dcp("1"), **dcp("2"),
            "a/latest": b"run/step-7/", **dcp("a/step-7"), **dcp("a/step-8"), **dcp("a/step-9"),
        },
        "keep_last": 1,
        "removed": ["step-1.pt", "step-3.pt", "1", "a/step-8"],
        "reasons": {"step-2.pt": r"last\.txt names it", "a/step-7": "latest names it"},
    },
    "what pointers name by its step, or without its ending": {
        "objects": {
            "a/best.bin": b"PK\0\0 step-0.pt\0", "a/last.bin": b"\0\0003", "a/last.ckpt": b"\0\0 3 ",
            **files(*(f"a/step-{i}.pt" for i in (0, 1, 2, 3, 4)), *(f"a/00{i}.ckpt" for i in (1, 2, 3)), "a/bestiary/step-1.pt"),
            "a/latest_checkpointed_iteration.txt": b" 0002\n", "a/best.txt": b'{"best": "step-1", "of": "xstep-3 step-3.", "n": 1}',
            "a/best-2.pt": b"x" * 5000 + b" step-3 ", "a/last-v1.ckpt": b"1", **deepspeed("a/global_step2"), "a/latest": b"",
        },
        "keep_last": 1,
        "removed": ["a/step-3.pt", "a/001.ckpt"],
        "reasons": {
            "a/step-0.pt": r"best\.bin names it", "a/step-1.pt": r"best\.txt names it", "a/step-2.pt": r"latest_checkpointed_iteration\.txt names it",
            "a/002.ckpt": r"latest_checkpointed_iteration\.txt names it",
        },
    },
    "a pointer that is not below the prefix": {
        "objects": {**files("run/step-1.pt", "run/step-2.pt"), "run/latest": b"step-1.pt"},
        "prefix": "run/step",
        "keep_last": 1,
        "removed": [],
    },
    "Lightning's folders": {
        "objects": {
            **{name: data for i in (1, 2) for name, data in {
                **dcp(f"epoch={i}-step={i}0.ckpt"), f"epoch={i}-step={i}0.ckpt/meta.pt": b"1"}.items()},
            **dcp("last.ckpt"), "epoch=5-step=50.ckpt": b"a file",
        },
        "keep_last": 1,
        "removed": ["epoch=1-step=10.ckpt"],
    },
    "Lightning's folders of DeepSpeed": {
        "objects": {
            name: data for i in (1, 2) for name, data in {
                **deepspeed(f"epoch={i}-step={i}.ckpt/checkpoint"), f"epoch={i}-step={i}.ckpt/latest": b"checkpoint"}.items()
        },
        "keep_last": 1,
        "removed": [],
        "reasons": {"epoch=1-step=1.ckpt": UNKNOWN},
    },
    "others that are left alone": {
        "objects": {
            **orbax("100"), **orbax("200"), **megatron("iter_0000100"), **megatron("iter_0000200"),
            "latest_checkpointed_iteration.txt": b"200",
            **files("nemo/gpt--val_loss=1.2-epoch=1-consumed_samples=100.0/weights/common.pt",
                    "nemo/gpt--val_loss=1.2-epoch=2-consumed_samples=200.0/weights/common.pt",
                    "acc/checkpoint_0/model.safetensors", "acc/checkpoint_1/model.safetensors",
                    "acc/checkpoint_0/optimizer.bin", "acc/checkpoint_1/optimizer.bin",
                    "mega/iter_0000001/mp_rank_00/model_optim_rng.pt", "mega/iter_0000002/mp_rank_00/model_optim_rng.pt",
                    "custom/step-1/0.pt", "custom/step-1/1.pt", "custom/step-2/0.pt", "custom/step-2/1.pt",
                    "ranks/1/0.pt", "ranks/1/1.pt", "ranks/2/0.pt", "ranks/2/1.pt", "ranks/2/x/1/3.pt", "ranks/2/x/2.pt"),
        },
        "keep_last": 1,
        "removed": [],
        "reasons": {"custom/step-1": UNKNOWN, "ranks/1/0.pt": NO_STEP},
    },
    "checkpoints of numbered runs, or ranks": {
        "objects": {
            **files("1/step-1.pt", "1/step-2.pt", "2/step-1.pt", "1/a/step-5.pt", "1/a/step-6.pt", "2/b/step-5.pt"),
            **dcp("1/checkpoint-3"), **dcp("1/checkpoint-4"),
        },
        "keep_last": 1,
        "removed": ["1/checkpoint-3", "1/a/step-5.pt"],
        "reasons": {"1/step-1.pt": "one of the last 1 in another folder called #"},
    },
    "ranks in folders of their own": {
        "objects": files(
            *(f"{run}/mp_rank_{rank:02}/epoch=0-step={step}.ckpt" for run in ("run1", "run2") for rank in (0, 1)
              for step in (10, 20, 30)),
            "run1/mp_rank_00/epoch=1-step=40.ckpt", "run2/mp_rank_00/epoch=0-step=20-v1.ckpt", "run2/mp_rank_00/step=20.ckpt",
            # One lacks its last one, the other the one before.
            *(f"torn/worker{i}/x/step_{step}.safetensors" for i, had in enumerate(((1, 2, 3, 5), (1, 2, 3, 4))) for step in had),
            # There were more once.
            *(f"fewer/rank-{rank}/{step}.pt" for rank, had in enumerate(((1, 2, 7, 8, 9), (1, 2, 7, 8), (1, 2))) for step in had),
            *(f"tp_rank_{i}_pp_rank_{j}/step-{step}.pt" for i in (0, 1) for j in (0, 1) for step in (1, 2, 3) if i + j < 2 or step < 3),
            *(f"exp{i}/step-{step}.pt" for i in (1, 2) for step in (1, 2, 3) if i + step < 5),
        ),
        "keep_last": 1,
        "removed": [
            *(f"{run}/mp_rank_0{rank}/epoch=0-step=10.ckpt" for run in ("run1", "run2") for rank in (0, 1)),
            *(f"run{i}/mp_rank_0{rank}/epoch=0-step={step}.ckpt" for i, step in ((1, 20), (2, 20)) for rank in (0, 1)),
            "run2/mp_rank_00/epoch=0-step=20-v1.ckpt",
            *(f"torn/worker{i}/x/step_{step}.safetensors" for i in (0, 1) for step in (1, 2)),
            *(f"fewer/rank-{rank}/{step}.pt" for rank, had in enumerate(((1, 7), (1, 7), (1,))) for step in had),
            *(f"tp_rank_{i}_pp_rank_{j}/step-1.pt" for i in (0, 1) for j in (0, 1)),
            "exp1/step-1.pt", "exp1/step-2.pt", "exp2/step-1.pt",
        ],
        "reasons": {
            "run1/mp_rank_00/epoch=0-step=30.ckpt": "one of the last 1 in another folder called mp_rank_#",
            "torn/worker0/x/step_3.safetensors": "one of the last 1 in all folders called worker#",
            "tp_rank_0_pp_rank_1/step-2.pt": "another folder called tp_rank_#_pp_rank_#",
        },
    },
    "ranks that were named": {
        "objects": files(*(f"run/rank_{rank}/step-{step}.pt" for rank in (0, 1) for step in (1, 2) if rank + step < 3)),
        "prefix": "run/rank_0/",
        "keep_last": 1,
        "removed": ["run/rank_0/step-1.pt"],
    },
    "ranks that save alone": {
        "objects": {
            **{name: data for step in (1, 2, 3, 4, 5) for rank in (0, 1, 2) if step != 3 or rank != 1
               for name, data in dcp(f"step-{step}", f"{rank}_0", metadata=f"__{rank}.metadata",
                                     ending=f".{step}{rank}23456789abcdef.rank.distcp").items()
               if step < 4 or rank == 0 or (step == 4 and not name.endswith("metadata"))},
            **dcp("step-1", ending=SAVE + ".distcp"),
        },
        "young": [f"step-4/__{rank}_0.4{rank}23456789abcdef.rank.distcp" for rank in (1, 2)],
        "keep_last": 1,
        "removed": ["step-1"],
        "reasons": {
            "step-2": "one of the last", "step-3": r"not complete, __1\.metadata is missing", "step-4": r"not complete, __1\.metadata is missing",
            "step-5": r"not complete, __1\.metadata is missing",
        },
    },
    "numbers below a number that was asked for": {
        "objects": files("2024/1.pt", "2024/2.pt", "2025/1.pt", "2025/2.pt"),
        "prefix": "2024/",
        "keep_last": 1,
        "removed": ["2024/1.pt"],
    },
    "what killed saves left": {
        "objects": {
            **dcp("step-1", ending=SAVE + ".distcp"), f"step-1/__0_0{OTHER}.distcp": b"123",
            f"step-1/__0_0{OTHER}.rank.distcp": b"123", "step-1/__7_0.distcp": b"of torch",
            f"step-2/__0_0{OTHER}.distcp": b"123", "step-2/meta.pt": b"1", "step-2/notes.txt": b"1",
            **dcp("last", ending=SAVE + ".distcp"), f"last/__3_0{OTHER}.distcp": b"1", f"step-3/__0_0{OTHER}.distcp": b"1",
        },
        "young": [f"step-3/__0_0{OTHER}.distcp"],
        "keep_last": 1,
        "removed": [],
        "strays": [
            f"step-1/__0_0{OTHER}.distcp", f"step-1/__0_0{OTHER}.rank.distcp", f"step-2/__0_0{OTHER}.distcp",
            f"last/__3_0{OTHER}.distcp",
        ],
        "reasons": {"step-2": "not complete"},
    },
    "a save over one that is to go": {
        "objects": {**dcp("step-1"), f"step-1/__0_0{OTHER}.distcp": b"123", **dcp("step-2")},
        "young": [f"step-1/__0_0{OTHER}.distcp"],
        "keep_last": 1,
        "removed": [],
        "reasons": {"step-1": f"a save may be under way: __0_0{OTHER}.distcp is not old"},
    },
    "a prefix that hides the metadata": {
        "objects": {**dcp("a/last", ending=SAVE + ".distcp"), **dcp("a/7", ending=SAVE + ".distcp")},
        "prefix": "a/last/__",
        "keep_last": 1,
        "removed": [],
    },
    "parts of uploads that are composed": {
        "objects": files(
            *(f".ringest-parts/{'0123456789abcdef' * 2}/0000{i}" for i in range(3)),
            *(f".ringest-parts/{'fedcba9876543210' * 2}/0000{i}" for i in range(3)),
            ".ringest-parts/notes.txt", ".ringest-parts/0123/00001", f".ringest-parts/{'0123456789abcdef' * 2}/x",
            "step-1.pt",
        ),
        "young": [f".ringest-parts/{'fedcba9876543210' * 2}/00001"],
        "keep_last": 1,
        "removed": [],
        "strays": [f".ringest-parts/{'0123456789abcdef' * 2}/0000{i}" for i in range(3)],
    },
    "marks of folders": {
        "objects": {**dcp("step-1"), "step-1/": b"", **dcp("step-2"), "step-2/": b"", "run/": b"", **dcp("step-0"), "step-0/": b"1"},
        "keep_last": 1,
        "removed": ["step-1"],
    },
    "nothing": {"objects": files("notes.txt"), "keep_last": 3, "removed": []},
}
# fmt: on
