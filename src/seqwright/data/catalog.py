"""Catalog of named datasets: title, task, license terms, and the checksums of their files.

No dataset is shipped with seqwright: files are found under the data root, compressed or not. Checksums are sha256 of
the decompressed content.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from seqwright.core.config import UserError, did_you_mean
from seqwright.data.files import COMPRESSED, DATA_ROOT, read_bytes

State = Literal["there", "missing", "verified", "differs"]


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A dataset; its folder under the data root has the name of its entry in `DATADATASETS`."""

    title: str
    task: str
    terms: str
    files: dict[str, str]
    """File name inside the folder, without .gz or .xz → sha256."""


def data_root() -> Path:
    """The data root, from the environment."""
    root = os.environ.get(DATA_ROOT)
    if not root:
        raise UserError(f"{DATA_ROOT} is not set; export it as the folder for datasets.")
    return Path(root)


def find(name: str) -> Dataset:
    """The dataset of this name."""
    if name not in DATASETS:
        raise UserError(f"no dataset '{name}'.{did_you_mean(name, DATASETS)}")
    return DATASETS[name]


def file_states(name: str, root: Path, *, verify: bool = False) -> Iterator[tuple[str, State]]:
    """Each file of a dataset with its state; `verify` reads the files and compares their checksums."""
    for file, checksum in find(name).files.items():
        path = locate(root / name / file)
        if path is None:
            yield file, "missing"
        elif not verify:
            yield file, "there"
        else:
            yield file, "verified" if hashlib.sha256(read_bytes(path)).hexdigest() == checksum else "differs"


def locate(path: Path) -> Path | None:
    """The existing file of this name, plain or compressed, if any."""
    return next((file for end in ("", *COMPRESSED) if (file := path.with_name(path.name + end)).is_file()), None)


DATASETS: dict[str, Dataset] = {
    "ptb": Dataset(
        title="Penn Treebank as Mikolov prepared it, 10,000 words",
        task="language model",
        terms="from LDC Treebank-3 (WSJ); no license is stated; research use, not to be redistributed",
        files={
            "ptb.test.txt": "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0",
            "ptb.train.txt": "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf",
            "ptb.valid.txt": "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2",
        },
    ),
    "wikitext2": Dataset(
        title="WikiText-2 by words, with <unk>",
        task="language model",
        terms="CC BY-SA 3.0",
        files={
            "wiki.test.tokens": "d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0",
            "wiki.train.tokens": "9e9fa1ad55b1c2c95b08e37dd8e653f638fac2c6de904b79e813611eefbc985f",
            "wiki.valid.tokens": "f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8",
        },
    ),
    "tiny_shakespeare": Dataset(
        title="tiny Shakespeare",
        task="language model",
        terms="public domain",
        files={
            "input.txt": "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
        },
    ),
    "multi30k": Dataset(
        title="Multi30k task 1, raw: English, German, French",
        task="translation",
        terms="English captions: Flickr30k's research terms; translations: usually taken as CC BY-NC-SA 4.0",
        files={
            "test_2016_flickr.de": "4be6b5b3236b79c25475c6bb829800a7ce559e9ba7a1f6c2394fe4d40be46d16",
            "test_2016_flickr.en": "399a4382932c1aadd3ceb9bef1008d388a64c76d4ae4e9d4728c6f4301cac182",
            "test_2016_flickr.fr": "cb3160d69b002bb638e66cc7612fcd56cb0af82eadc9c142dedc438afb885ef6",
            "train.de": "2c2b73fd2b548fbcde3a875e0a78d6ee94d498bfdee6bd3eae3945779e9ddf72",
            "train.en": "460a15fbd157e34a7a9957ee388c1ca247fe47af3ef25fb50442af6c274e0fc6",
            "train.fr": "5925a3c18f1587b6b54b87743106e6e8ab93618edb6f65d19eac0621f853a10d",
            "val.de": "660e09eb7e1da2f856ea13ee5ad3cf6d36b3d5b0b733c857e94c5747a3dfc660",
            "val.en": "1f2a23d992769b5b3d209b0a10dd0b77c08cceb1f20dfb97ed0aafa49d107227",
            "val.fr": "5304e444d842e962b2dda4d816b70b22a1765b15401642b7ca37a67477e708dc",
        },
    ),
    "tatoeba_en_de": Dataset(
        title="Tatoeba English-German sentence pairs (2018)",
        task="translation",
        terms="CC BY 2.0 FR; attribution to tatoeba.org and manythings.org/anki",
        files={
            "deu-eng.tsv": "a79c90b3cd3102decffa49cc00fb6f20023974f2ae5c4782515bebe133fcc07b",
        },
    ),
    "envi_vlsp20": Dataset(
        title="VLSP 2020 English-Vietnamese",
        task="translation",
        terms="news: research use; wiki-alt: CC BY 4.0; basic includes Tatoeba (CC BY 2.0 FR)",
        files={
            "basic.train.en": "5e6450f7a75956c9ba4a2768017aff0a5b846ccbe846fa1a399e4a6d8b73bd44",
            "basic.train.vi": "b91d1c2201f23a28bf974652a5d4091904d675e67d23f9261ec33bac97b18d3a",
            "news.dev.en": "642cc77703dae48c67e9bc7fe96f358e450e3868508dca07cced110dcb904d63",
            "news.dev.vi": "cc0cea642c37e488593f24b05367b36d1561b006e624f7707782b0628b6007ca",
            "news.test.en": "c414f7454e1bc1ca915ad80a19ab57a0248559762bd8e18e97571eb4f492a6f8",
            "news.test.vi": "1aef389ef51813992648f70858e88c4ffeb26379f5e249d5b7b279ac9582b9e5",
            "news.train.en": "9f56aace0aa1569e19077a9474af6a340890e20898debd6839a2ea33bbf4c8ca",
            "news.train.vi": "d7313cef047ab2b2823a79808cae45eb19b9afa1114c0bfcee19187396d6268e",
            "wiki-alt.train.en": "9a934a04a6ef8a7f477fab2f08b48b56a605b7532f2c51c98abae1bf688ff081",
            "wiki-alt.train.vi": "92881cc3f3ad9c3d8d9c40ed3a650cda8af9da4cabe17b89b29c26daaf15b7c5",
        },
    ),
    "imdb": Dataset(
        title="IMDB large movie reviews, official split",
        task="classification",
        terms="no license is stated; research use, cite Maas et al. (2011)",
        files={
            "test.tsv": "11ca5a6ab668d56165fff80d9c14c7e407210a1b9236001fae309f2cd87c4985",
            "train.tsv": "7caa9bed50d641e5a8df0d7f0d1905bae67942ecb5e807d049647f8fda983b1c",
        },
    ),
    "ud_english_ewt": Dataset(
        title="Universal Dependencies English-EWT 2.16 (form, UPOS, XPOS)",
        task="tagging",
        terms="CC BY-SA 4.0",
        files={
            "en_ewt-ud-dev.tsv": "e32fb133a579838daad7d2f0116527577132fe9ef14762ed429ad69fb1b49d8d",
            "en_ewt-ud-test.tsv": "10db3fe452685aedbe0033cf846602a60f5d1324fcbd10e355ebaea36e883c74",
            "en_ewt-ud-train.tsv": "f43caea8bcb890ea29011c77986bb04d073dac8a9d134428101e0023883f7b09",
        },
    ),
    "glue": Dataset(
        title="GLUE's small tasks: SST-2, CoLA, MRPC, RTE",
        task="classification",
        terms="each task its own terms; MRPC: non-commercial; the others: none stated or research use",
        files={
            "CoLA/dev.tsv": "8c013e21dc39957cac37378d87bebe225b694a0d5fe13eded66c2856628833fd",
            "CoLA/test.tsv": "3b4df85f7a9a0633574b38d181e18090ac961a24b18fb6bcd74999ddea8ad0b8",
            "CoLA/train.tsv": "cb368ebeb9f27d7ad03720d27ddc95687a311bdb100781a2fe59a5f5b1bc0624",
            "MRPC/dev.tsv": "9e8f284788040f7c9ecde2e1b3c07237c756f926bd9ef8548ef5d34b56f69f17",
            "MRPC/msr_paraphrase_test.txt": "a04e271090879aaba6423d65b94950c089298587d9c084bf9cd7439bd785f784",
            "MRPC/train.tsv": "69abcedee3cf738c6ce58d772e43e1b7cdf5b4edee4aceda459c0d9f4e5599f3",
            "RTE/dev.tsv": "80230dfa1347282e7b532b06a1004a76a710087541189bf874223ddf0e3819fb",
            "RTE/train.tsv": "41e3a9b063433392343fad9e962cf2f58b681c78d8f71592f4186f0837246c5c",
            "SST-2/dev.tsv": "54a9c12c77e402fc14d6a66a506f24d999f596b0176eb777c972cccc2f9cc4b0",
            "SST-2/test.tsv": "69a938605609b3e6663b4487918fe1565eb293734e6e520d0366d1d412fd2a13",
            "SST-2/train.tsv": "48eac26399f8456935f81dd9e3a745c1430adb6c62e233ccfe22db4a0d15d1d1",
        },
    ),
    "sst": Dataset(
        title="Stanford Sentiment Treebank by sentences, 2 and 5 classes",
        task="classification",
        terms="none stated; research use, cite Socher et al. (2013)",
        files={
            "stsa.binary.dev.txt": "02fedc82855dbdcabe82c65ed1af6c6570788eaac51073cdb35ee8c7784426d1",
            "stsa.binary.test.txt": "6a80dc9b9a0db2d3b37f2f809304febad31c90ab67a5b4157b7d9f881c53ef5b",
            "stsa.binary.train.txt": "71c04bcc41291fa47454dd670df701b14ee9249156babeaac404cfe2c8d74338",
            "stsa.fine.dev.txt": "b2f76c62b960f9fda5c6d751edb125abab4f878eb94a8754239b7f4af647f4c3",
            "stsa.fine.test.txt": "0e2ebb450c231f7b3d67fc932066e7bb26ae7bad8c88488f45ed44ef02eb3c73",
            "stsa.fine.train.txt": "9b52b5f686ed438d4d0274c385369251b3d579b578fddd340ba8a9bae2ca4bee",
        },
    ),
    "atis": Dataset(
        title="ATIS intents and slots",
        task="tagging",
        terms="LDC origin, none stated; research use",
        files={
            "test.tsv": "d4a59f8459fb47f023975d6b411bcbd6d49fb27d314198a98fc3cf56610f89fc",
            "train.tsv": "c6d67d5e63f62dafc41e369415941ca0468eaf6cb6dec2522de1de4164ff6c5b",
            "valid.tsv": "edf8fab105585c729978db522ecffad9827041103771cb724ddca48474e5c9bc",
        },
    ),
    "scan": Dataset(
        title="SCAN: simple, length and add-jump splits",
        task="source to target",
        terms="BSD",
        files={
            "tasks_test_addprim_jump.txt": "8147ae2651422c701162e174d9d66158daa57858a26b30317ac61797118ac7a5",
            "tasks_test_length.txt": "0760752ed34a75116ae11dcc1ee17526b7500060da1366540730fa24894d7db3",
            "tasks_test_simple.txt": "1fe1c8f5a19d0dc40e41bab94278f45f66f3dc415a978bd29855a23440610fc6",
            "tasks_train_addprim_jump.txt": "e3c78485692e028eed4205e1b8b3fd0e785ef2c12d45b5b89204dadf5b239e23",
            "tasks_train_length.txt": "b034212dc7cf87ce62f3a067dd6ad49c4d5cd18d51d615d13825516bcb1ebbc2",
            "tasks_train_simple.txt": "941bb8a088c5f53ceff12fde902dc008933cf0c4203cc672c47b5f79d73262dd",
        },
    ),
    "cmudict": Dataset(
        title="CMU Pronouncing Dictionary",
        task="source to target",
        terms="BSD 2-clause style",
        files={
            "cmudict.dict": "81917843c7f44ce2b094ac63873c2c7a4cf802040792c455ba3ca406891c3d22",
        },
    ),
    "truyen_kieu": Dataset(
        title="Truyện Kiều (Nguyễn Du), quốc ngữ",
        task="language model",
        terms="public domain",
        files={
            "truyen_kieu.txt": "a60df00360bcb8057aed5515d524feeb879d43d51e60a13d83e39065546bdd1a",
        },
    ),
    "mnist": Dataset(
        title="MNIST: 10,000 training and 10,000 test images",
        task="images",
        terms="usually given as CC BY-SA 3.0",
        files={
            "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
            "train-images-first10k.idx3-ubyte": "2889698e6bc3614913e76901316712919d1998fc2b44512451bfe65bc1e668b1",
            "train-labels-first10k.idx1-ubyte": "651e38e2ac0632f5113ec18f1df4977117f953197819034009971a6675a0df78",
        },
    ),
}
