#!/usr/bin/env python3
"""Every planted bug is caught by the kernels' checks: the proof that the checks can fail.

mutants_test.py SOURCE_ROOT WORK_FOLDER VARIANTS_FILE

Each variant (plain, asan, tsan) has the command that compiles a kernel and what a check program is
linked from; the mutated kernel's object file comes first, so the library's own is not taken.
"""
import dataclasses
import os
import re
import subprocess
import sys
from pathlib import Path

SEEDS = ("0", "1", "2", "3")
STEPS = "steps"  # the variant whose program runs whole steps
WIDE = "cuda/attention_wide_kernels.cu"
NARROW = "cuda/attention_narrow_kernels.cu"
WIDE_BYTES = "cuda/attention_wide_bytes_kernels.cu"
NARROW_BYTES = "cuda/attention_narrow_bytes_kernels.cu"
TILE = "cuda/attention_tile.h"
LOADER = "cuda/attention_loader.h"
BYTES = "cuda/kv_bytes.h"
# What is mutated, of sources that hold nothing but instances.
CODE = {WIDE: "cuda/attention_wide.h", WIDE_BYTES: "cuda/attention_wide.h",
        NARROW: "cuda/attention_narrow.h", NARROW_BYTES: "cuda/attention_narrow.h"}


@dataclasses.dataclass
class Mutant:
    name: str
    kernel: str  # the source to compile, a kernel's or one of the host's
    before: str
    after: str
    variant: str  # of the build that must catch it
    checks: str  # a part of the names of the checks that are run
    file: str = ""  # the mutated file, if it is neither the kernel nor its code
    shared_kib: int = 227  # that a block may have


MUTANTS = (
    Mutant("no barrier between the stages of many rows", WIDE,
           "      __syncthreads();  // these keys are there", "      // these keys are there",
           "tsan", "attention_of_prefills"),
    Mutant("no barrier after the last keys of an item", WIDE,
           "    __syncthreads();  // queries and keys are no longer read\n", "", "tsan",
           "attention_of_prefills"),
    Mutant("no barrier between the stages", NARROW,
           "        __syncthreads();  // this stage is there", "        // this stage is there",
           "tsan", "attention_of_decodes"),
    Mutant("copies are not waited for", WIDE, "      wait_for_copies<0>();", "", "plain",
           "attention_of_prefills"),
    Mutant("copies are waited for one step late", NARROW, "wait_for_copies<S::kStages - 2>();",
           "wait_for_copies<S::kStages - 1>();", "plain", "attention_of_decodes"),
    Mutant("keys behind the end are read", NARROW, "const bool is_valid = position < item.key_end;",
           "const bool is_valid = true;", "plain", "attention_of_decodes", LOADER),
    Mutant("keys behind the end are read, of many rows", WIDE,
           "const bool is_valid = position < item.key_end;", "const bool is_valid = true;", "plain",
           "attention_of_encoders", LOADER),
    Mutant("a misaligned lane", WIDE, "static_cast<const Bf16*>(arguments.cache) + chunk * 8;",
           "static_cast<const Bf16*>(arguments.cache) + chunk * 8 + (chunk == 1 ? 4 : 0);", "plain",
           "attention_of_prefills", LOADER),
    Mutant("a swizzle that leaves its row", WIDE, "(row / kRowsPerLine & kMask)",
           "(row / kRowsPerLine & (kMask | 8))", "plain", "attention_of_prefills", LOADER),
    Mutant("no swizzle: bank conflicts", WIDE, "(chunk ^ (row / kRowsPerLine & kMask))",
           "(chunk ^ (row / kRowsPerLine & kMask & 0))", "plain", "attention_of_prefills", LOADER),
    Mutant("a row sees the token after it", WIDE, "min(item.key_end, position + 1)",
           "min(item.key_end, position + 2)", "plain", "attention_of_prefills", TILE),
    Mutant("the last masked step is taken for a whole one", WIDE,
           "if (key + S::kStepKeys > unmasked_end)", "if (key > unmasked_end)", "plain",
           "attention_of_prefills"),
    Mutant("a window of one token more", WIDE, "position - arguments.window_tokens + 1 : 0",
           "position - arguments.window_tokens : 0", "plain", "attention_in_windows", TILE),
    Mutant("outputs are taken to the new maximum in one lane only", WIDE,
           "if (__ballot_sync(kWholeWarp, is_higher) == 0) return;",
           "if (__ballot_sync(kWholeWarp, is_higher) != ~0u) return;", "plain",
           "attention_of_long_prefills"),
    Mutant("blocks write the same partial sums", NARROW,
           "arguments.partial_sums + partial_row(arguments, item.partial + row, kv_head) * 2;",
           "arguments.partial_sums + partial_row(arguments, row, kv_head) * 2;", "plain",
           "split_keys", TILE),
    Mutant("splits are weighed alike", NARROW, "return sums.y * fast_exp2(sums.x - base);",
           "return sums.y;", "plain", "split_keys", TILE),
    Mutant("splits lie as if nothing were shared", NARROW, "const int stride = item.stride *",
           "const int stride = item.num_rows *", "plain", "shared_keys", TILE),
    Mutant("only the first lanes' splits are combined", NARROW,
           "begin < item.num_splits; begin += 32", "begin < 32; begin += 32", "plain", "split_keys",
           TILE),
    Mutant("a split too early is the last", NARROW, "combines[member].num_splits - 1;",
           "combines[member].num_splits - 2;", "plain", "split_keys"),
    Mutant("counts stay for the next layer", NARROW, "if (last) *done = 0;", "", "plain",
           "split_keys"),
    Mutant("the next item's queries are not brought", NARROW,
           "if (coming_key == coming.key_begin) {", "if (coming_key == 0) {", "plain",
           "attention_of_decodes_with_split_keys"),
    Mutant("warps are merged without a barrier", NARROW,
           "        sums[at * 2 + 1] = sum;\n      }\n    }\n    __syncthreads();",
           "        sums[at * 2 + 1] = sum;\n      }\n    }", "tsan", "attention_of_decodes"),
    Mutant("warps are merged where others still read", NARROW,
           "    __syncthreads();  // keys and values are no longer read\n", "", "tsan",
           "attention_of_decodes"),
    Mutant("values have the scales of keys", NARROW_BYTES, "own_scales(stage, true, n)",
           "own_scales(stage, false, n)", "plain", "bytes_attended_by_few"),
    Mutant("keys have the scales of the next step", WIDE_BYTES, "scales(key) + n * 8",
           "scales(key + S::kStepKeys) + n * 8", "plain", "bytes_attended_by_many"),
    Mutant("values' scales are not brought", WIDE_BYTES, "if (which >= 2) return;",
           "if (which >= 1) return;", "plain", "bytes_attended_by_many", LOADER),
    Mutant("scales are not waited for", NARROW_BYTES, "wait_for_copies<S::kStages - 2>();",
           "wait_for_copies<S::kStages - 1>();", "plain", "bytes_attended_by_few"),
    Mutant("no barrier before scales are replaced", WIDE_BYTES,
           "      __syncthreads();  // these keys are there", "      // these keys are there",
           "tsan", "bytes_attended_by_many"),
    Mutant("another token's scale", NARROW_BYTES, "source + slot * 2 + which",
           "source + (slot ^ 1) * 2 + which", "plain", "bytes_attended_by_few", LOADER),
    Mutant("rows lie as if there were no scales", WIDE_BYTES,
           "(Rows::kScaleBytes << shift) / (2 * Rows::kUnitElements);", "0;", "plain",
           "bytes_attended_by_many", LOADER),
    Mutant("odd columns for even ones", WIDE_BYTES, "low.even, high.even, low.odd, high.odd",
           "low.odd, high.odd, low.even, high.even", "plain", "bytes_attended_by_many"),
    Mutant("columns are merged in the order of bf16", NARROW_BYTES,
           ": pair / 2 * 16 + lane % 4 * 4 + pair % 2 * 2", ": pair * 8 + lane % 4 * 2", "plain",
           "bytes_attended_by_few", TILE),
    Mutant("bytes without a sign", NARROW_BYTES, "(pair & 0x00800080u) | 0xC300C300u", "0xC300C300u",
           "plain", "bytes_attended_by_few", BYTES),
    Mutant("FP8 of another bias", NARROW_BYTES, "multiply_add_bf16(odd, 0x7B807B80u, 0)",
           "multiply_add_bf16(odd, 0x7B007B00u, 0)", "plain", "bytes_attended_by_few", BYTES),
    Mutant("a lane's largest element for the row's", "cuda/rotary_kernels.cu",
           "for (int distance = lanes / 2; distance > 0; distance /= 2) {\n      largest",
           "for (int distance = lanes / 4; distance > 0; distance /= 2) {\n      largest", "plain",
           "store_in_bytes"),
    Mutant("lanes keep what they should exchange", "cuda/rotary_kernels.cu",
           "is_odd ? own.x : own.y, 1)", "is_odd ? own.y : own.x, 1)", "plain", "store_in_bytes"),
    Mutant("keys with their offset", "cuda/rotary_kernels.cu", "first[i] -= offsets[i];", ";",
           "plain", "store_in_bytes"),
    Mutant("queries that are not mixed", "cuda/rotary_kernels.cu", "if (is_query || is_key) {\n#pragma",
           "if (is_key) {\n#pragma", "plain", "store_in_bytes"),
    Mutant("half of a row is mixed", "cuda/rotary_kernels.cu", "distance < lanes; distance *= 2",
           "2 * distance < lanes; distance *= 2", "plain", "store_in_bytes"),
    Mutant("keys count as often as they were mixed", "cuda/rotary_kernels.cu",
           "stored.scale / static_cast<float>(dim)", "stored.scale", "plain", "store_in_bytes"),
    Mutant("rows that are no numbers have a scale", "cuda/rotary_kernels.cu",
           ": __uint_as_float(0x7FFFFFFFu);", ": 0.0f;", "plain", "store_rows"),
    Mutant("FP8 rounded towards zero", "cuda/rotary_kernels.cu",
           "magnitude + 0x7FFFFu + (magnitude >> 20 & 1u)", "magnitude", "plain",
           "store_in_bytes", BYTES),
    Mutant("a copied block without its scales", "cuda/row_kernels.cu",
           "(copy[2] * arguments.scale_bytes + 15) / 16 * 16;", "0;", "plain", "copy_blocks"),
    Mutant("no barrier in a block's sum", "cuda/norm_kernels.cu",
           "partial[threadIdx.x / 32] = value;\n  __syncthreads();",
           "partial[threadIdx.x / 32] = value;", "tsan", "norm", "cuda/devrt.h"),
    Mutant("a barrier that some threads miss", "cuda/norm_kernels.cu",
           "partial[threadIdx.x / 32] = value;\n  __syncthreads();",
           "partial[threadIdx.x / 32] = value;\n  if (threadIdx.x >= 32) __syncthreads();", "plain",
           "norm", "cuda/devrt.h"),
    Mutant("the last columns are forgotten", "cuda/norm_kernels.cu",
           "const bool inside = col < arguments.cols;",
           "const bool inside = col < arguments.cols - 8;", "plain", "norm"),
    Mutant("rows behind the last are written", "cuda/activation_kernels.cu",
           "if (index >= total) return;", "if (index > total) return;", "asan", "silu"),
    Mutant("a padding row is stored", "cuda/rotary_kernels.cu", "inside && !is_query && slot >= 0;",
           "inside && !is_query;", "asan", "rotate_and_store"),
    Mutant("a rotation the other way", "cuda/rotary_kernels.cu",
           "first[i] * cosine - second[i] * sine", "first[i] * cosine + second[i] * sine", "plain",
           "rotate_and_store"),
    Mutant("a lane writes its neighbour's columns again", "cuda/row_kernels.cu",
           "is_odd ? col + 4 : col + 8", "is_odd ? col + 4 : col + 4", "plain", "embed"),
    Mutant("a kernel that does not wait for the one before it", "cuda/norm_kernels.cu",
           "  begin_overlapped();", "  let_next_kernel_begin();", "plain", "norm"),
    Mutant("inputs are read before the kernel that writes them is waited for",
           "cuda/product_kernels.cu",
           "  wait_for_previous_kernel();\n  Inputs8 inputs;\n  load_inputs(inputs, own_k);",
           "  Inputs8 inputs;\n  load_inputs(inputs, own_k);\n  wait_for_previous_kernel();", "plain",
           "products"),
    Mutant("a block's sums are added before all are there", "cuda/product_kernels.cu",
           "  own[kStride + 8] = sums[3];\n  __syncthreads();", "  own[kStride + 8] = sums[3];",
           "tsan", "products"),
    Mutant("weights behind a row's end", "cuda/product_kernels.cu",
           "const bool inside = k + c * kChunk < in;", "const bool inside = true;", "asan",
           "products"),
    Mutant("inputs of rows that are not there", "cuda/product_kernels.cu",
           "const bool inside = is_row && k", "const bool inside = k", "asan", "products"),
    Mutant("pairs of weights in another order than the inputs'", "cuda/product_kernels.cu",
           "{low.z, high.z, low.w, high.w}", "{low.w, high.w, low.z, high.z}", "plain",
           "products"),
    Mutant("a drawn token more", "cuda/row_kernels.cu", "if (i < num_drawn)", "if (i <= num_drawn)",
           "asan", "take_drawn"),
    Mutant("a drawn token that is none", "cuda/row_kernels.cu", "max(chosen[drawn[2 * i + 1]], 0)",
           "chosen[drawn[2 * i + 1]]", "plain", "take_drawn"),
    Mutant("another draw's token", "cuda/row_kernels.cu", "chosen[drawn[2 * i + 1]]", "chosen[i % 150]",
           "plain", "take_drawn"),
    Mutant("a block copy of 16 bytes more", "cuda/row_kernels.cu", "at < bytes;", "at <= bytes;",
           "plain", "copy_blocks"),
    Mutant("the last of equal logits", "cuda/sampler_kernels.cu",
           "key) << 32 | ~static_cast<unsigned>(token)", "key) << 32 | static_cast<unsigned>(token)",
           "plain", "sample", "cuda/sampler_list.h"),
    Mutant("a shuffle that some lanes miss", "cuda/sampler_kernels.cu",
           "const unsigned beyond = __ballot_sync",
           "if (i >= count_) continue;\n        const unsigned beyond = __ballot_sync", "plain",
           "sample", "cuda/sampler_search.h"),
    Mutant("sums are read before all are there", "cuda/sampler_kernels.cu",
           "    if (lane == 0 && all != 0) atomicAdd(&memory_.above, all);\n    __syncthreads();",
           "    if (lane == 0 && all != 0) atomicAdd(&memory_.above, all);", "tsan", "sample_as",
           "cuda/sampler_search.h"),
    Mutant("an index is replaced before all lanes have it", "cuda/sampler_kernels.cu",
           "      __syncwarp();  // all lanes have read the segment's index\n", "", "tsan", "sample_as",
           "cuda/sampler_search.h"),
    Mutant("draws from the logits beside its own", "cuda/sampler_kernels.cu",
           "static_cast<long long>(row.logits_row)", "static_cast<long long>(blockIdx.x)", "plain",
           "sample_as"),
    Mutant("a min-p of 1 is none", "cuda/sampler_kernels.cu", "row.min_p_distance > -kInfinity",
           "row.min_p_distance < 0.0f", "plain", "sample_as"),
    Mutant("one candidate more", "cuda/sampler_kernels.cu",
           "static_cast<Mass>(row.top_k - 1) - place.above", "static_cast<Mass>(row.top_k) - place.above",
           "plain", "sample_as"),
    Mutant("one listed candidate more", "cuda/sampler_kernels.cu",
           "(threadIdx.x) < row.top_k", "(threadIdx.x) <= row.top_k", "plain", "sample_as"),
    Mutant("a list that is full", "cuda/sampler_kernels.cu",
           "if (count > kSampleThreads) return false;", "", "plain", "sample_as",
           "cuda/sampler_list.h"),
    Mutant("an entry is replaced before its partner has it", "cuda/sampler_kernels.cu",
           "          other = memory_.entries[thread ^ distance];\n          __syncthreads();",
           "          other = memory_.entries[thread ^ distance];", "tsan", "sample_among",
           "cuda/sampler_list.h"),
    Mutant("more stages than a device has shared memory for", NARROW,
           "return fits ? most : kFewestNarrowStages;", "return most;", "plain",
           "attention_of_decodes", "cuda/attention_shapes.h", 99),
    Mutant("pinned memory is written before it is sent", "cuda/step_arrays.cpp", "    sent_.wait();\n",
           "", STEPS, "ahead", "cuda/staged_upload.h"),
    Mutant("arrays that move leave recordings as they are", "cuda/cuda_backend.cpp",
           "padded_rows(rows) : rows, &stream_)) ++generation_;",
           "padded_rows(rows) : rows, &stream_)) {}", STEPS, "recorded_again"),
    Mutant("the other step's draws", "cuda/device_draws.cpp",
           "const Step& step = steps_[last_];", "const Step& step = steps_[1 - last_];", STEPS, "ahead"),
    Mutant("draws of the step before are read for the step's own", "cuda/device_draws.cpp",
           "num_under_way_ == 2 ? 1 - last_ : last_", "num_under_way_ == 2 ? last_ : 1 - last_", STEPS,
           "ahead"),
)


def read_variants(path):
    """Lines "variant=compile command|parts of the program"."""
    variants = {}
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        name, commands = line.split("=", 1)
        compiler, parts = commands.split("|")
        variants[name] = (compiler.split(), parts.split())
    return variants


def build(mutant, root, folder, variant):
    """The check program with the bug in it."""
    compiler, parts = variant
    changed = mutant.file or CODE.get(mutant.kernel, mutant.kernel)
    text = (root / changed).read_text(encoding="utf-8")
    if text.count(mutant.before) < 1:
        raise LookupError(f"{changed} no longer has the text that is to be changed")
    overlay = folder / "source"
    (overlay / "cuda").mkdir(parents=True, exist_ok=True)
    for stale in (overlay / "cuda").iterdir():
        stale.unlink()
    (overlay / changed).write_text(text.replace(mutant.before, mutant.after), encoding="utf-8")
    kernel = (overlay if changed == mutant.kernel else root) / mutant.kernel
    if mutant.kernel in (WIDE_BYTES, NARROW_BYTES):
        # Heads of 64 alone have the bug; the others are the library's.
        instances = kernel.read_text(encoding="utf-8")
        kernel = overlay / mutant.kernel
        kernel.write_text(re.sub(r"template void [^;]*<(?!64,)\d+,[^;]*;", "", instances), encoding="utf-8")
    target = folder / "mutant.o"
    program = folder / "checks"
    subprocess.run([*compiler, f"-I{overlay}", f"-I{root}", "-O1", "-w", "-x", "c++", "-c", kernel,
                    "-o", target], check=True)
    subprocess.run([*compiler, target, *parts, "-o", program], check=True)
    return program


def is_caught(program, mutant):
    seeds = SEEDS if mutant.variant == "plain" else SEEDS[:1]
    for seed in seeds:
        result = subprocess.run([program, seed, mutant.checks], capture_output=True, check=False,
                                timeout=120, env={**os.environ, "TSAN_OPTIONS": "halt_on_error=1",
                                             "BATCHMILL_EMULATED_SHARED_KIB": str(mutant.shared_kib)})
        if result.returncode != 0:
            return True
    return False


def main():
    root, folder = Path(sys.argv[1]), Path(sys.argv[2])
    variants = read_variants(sys.argv[3])
    folder.mkdir(parents=True, exist_ok=True)
    missed = 0
    for mutant in MUTANTS:
        try:
            caught = is_caught(build(mutant, root, folder, variants[mutant.variant]), mutant)
        except LookupError as error:
            print(f"{mutant.name}: {error}")
            missed += 1
            continue
        if not caught:
            print(f"{mutant.name}: NOT caught ({mutant.variant}, {mutant.checks})")
            missed += 1
    print(f"{len(MUTANTS) - missed} of {len(MUTANTS)} planted bugs caught")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
