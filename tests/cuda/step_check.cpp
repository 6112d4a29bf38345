// Whole steps of small models on the device.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "cuda/attention_shapes.h"
#include "engine/engine.h"
#include "tests/cuda/check.h"
#include "tests/cuda/step_golden.h"
#include "tests/cuda/step_model.h"

namespace batchmill::testing {
namespace {

// bf16 activations against float32. What bytes cost comes to it, half as much again because other
// bytes are chosen where bf16 lies near the middle of two.
constexpr float kTolerance = 0.015f;
constexpr float kInt8Tolerance = kTolerance + 1.5f * kInt8Cost;
constexpr float kFp8Tolerance = kTolerance + 1.5f * kFp8Cost;

// Whether the device has too little shared memory for the model's heads, which loading it says.
bool is_refused(Check& check, const ModelShape& shape, DType kv) {
  if (least_attention_shared_bytes(shape.dim, kv) <= device_facts(0).shared_bytes) return false;
  try {
    StepModel(shape, kGoldenBlocks, kGoldenContextTokens, kv);
    check.fail("heads that do not fit are not refused");
  } catch (const std::runtime_error& error) {
    const std::string what = error.what();
    check.expect(what.find("bytes of shared memory") != std::string::npos, what);
  }
  return true;
}

void check_golden(Check& check, std::int32_t chunk, DType kv, float tolerance) {
  for (const GoldenModel& model : golden_models()) {
    if (is_refused(check, model.shape, kv)) continue;
    StepModel own(model.shape, kGoldenBlocks, kGoldenContextTokens, kv);
    const auto results = run_golden(
        model, chunk, [&](const Batch& batch) -> std::vector<float>& { return own.run(batch); });
    for (std::size_t s = 0; s < kGoldenSequences; ++s) {
      for (std::size_t t = 0; t < kGoldenTokens; ++t) {
        const GoldenToken& golden = model.sequences[s][t];
        const StepResult& result = results[s][t];
        const std::string place = std::string(model.shape.name) + ", sequence " +
                                  std::to_string(s) + ", token " + std::to_string(t) + ": ";
        const float error = std::abs(result.golden_logit - golden.logit);
        check.expect(error <= tolerance * (1.0f + std::abs(golden.logit)),  // false for NaN
                     place + "logit " + std::to_string(result.golden_logit) + ", not " +
                         std::to_string(golden.logit));
        check.expect(
            result.best.token == golden.token ||
                golden.margin < 2 * tolerance * (1.0f + std::abs(golden.logit)),
            place + std::to_string(result.best.token) + ", not " + std::to_string(golden.token));
      }
    }
  }
}

// Two sequences with the same prompt, once in blocks of their own and once in the same ones.
void check_shared_steps(Check& check, DType kv) {
  const GoldenModel& model = golden_models()[0];
  constexpr std::int32_t kPrompt = 300;
  StepModel own(model.shape, kGoldenBlocks, kGoldenContextTokens, kv);
  std::vector<StepSequence> sequences = make_sequences({kPrompt + 1, kPrompt + 1}, kGoldenBlocks);
  for (StepSequence& sequence : sequences) {
    for (std::int32_t i = 0; i <= kPrompt; ++i) {
      sequence.tokens.push_back((i * 13 + i * i) % model.shape.vocab);
    }
    sequence.tokens.back() += static_cast<TokenId>(&sequence - sequences.data());
    Batch batch = begin_batch(kGoldenContextTokens / kStepBlockTokens);
    add_rows(&sequence, kPrompt, &batch);
    own.run(batch);
  }
  std::vector<float> logits[2];
  for (const bool shares : {false, true}) {
    if (shares) std::copy_n(sequences[0].blocks.begin(), 17, sequences[1].blocks.begin());
    Batch batch = begin_batch(kGoldenContextTokens / kStepBlockTokens);
    for (StepSequence& sequence : sequences) {
      sequence.num_computed = kPrompt;
      add_rows(&sequence, 1, &batch);
    }
    check.expect(own.num_shared_keys() == 0, "keys are shared that are not the same");
    logits[shares] = own.run(batch);
  }
  check.expect(own.num_shared_keys() == 256, "the keys of a split are not shared");
  check.expect(logits[0] == logits[1], "sharing changes the logits");
}

}  // namespace

KERNEL_CHECK(steps_choose_the_tokens_of_the_cpu) {
  check_golden(check, 1000, DType::kBF16, kTolerance);
}
KERNEL_CHECK(steps_of_chunks_choose_the_tokens_of_the_cpu) {
  check_golden(check, 33, DType::kBF16, kTolerance);
}
KERNEL_CHECK(steps_on_int8_choose_the_tokens_of_the_cpu) {
  check_golden(check, 33, DType::kI8, kInt8Tolerance);
}
KERNEL_CHECK(steps_on_fp8_choose_the_tokens_of_the_cpu) {
  check_golden(check, 1000, DType::kF8, kFp8Tolerance);
}

KERNEL_CHECK(steps_with_shared_keys_give_the_same_bits) {
  check_shared_steps(check, DType::kBF16);
  check_shared_steps(check, DType::kI8);
}

// Decodes from the third step on are replayed.
KERNEL_CHECK(steps_draw_from_their_logits) {
  const GoldenModel& model = golden_models()[0];
  constexpr std::int32_t kLength = 12;
  StepModel own(model.shape, kGoldenBlocks, kGoldenContextTokens);
  std::vector<StepSequence> sequences = make_sequences({kLength, kLength, kLength}, kGoldenBlocks);
  for (StepSequence& sequence : sequences) {
    for (std::int32_t i = 0; i < kLength; ++i) {
      const auto place = static_cast<std::int32_t>(&sequence - sequences.data());
      sequence.tokens.push_back((i * 13 + place * 7) % model.shape.vocab);
    }
  }
  for (std::int32_t rows = 4; sequences[0].num_computed + rows <= kLength; rows = 1) {
    Batch batch = begin_batch(kGoldenContextTokens / kStepBlockTokens);
    for (StepSequence& sequence : sequences) add_rows(&sequence, rows, &batch);
    own.set_options({true, true, false});
    const std::vector<float> logits = own.run(batch);
    own.set_options({true, false, true});
    own.run(batch);
    check.expect(own.drawn().size() == sequences.size(), "tokens are missing");
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      const auto vocab = static_cast<std::size_t>(model.shape.vocab);
      const auto row = logits.begin() + static_cast<std::ptrdiff_t>(i * vocab);
      const auto best = std::max_element(row, row + static_cast<std::ptrdiff_t>(vocab)) - row;
      check.expect(own.drawn()[i].token == best, "a token that is not the best of its logits");
    }
  }
  check.expect(own.num_replayed_steps() > 0, "no step was replayed");
}

// Each step is begun before the tokens of the one before it are read, and takes them on the device.
// The order of the sequences changes from step to step.
KERNEL_CHECK(steps_begun_ahead_draw_the_same_tokens) {
  const GoldenModel& model = golden_models()[0];
  constexpr std::int32_t kPrompt = 5;
  constexpr std::int32_t kSteps = 9;
  std::vector<std::vector<TokenId>> tokens[2];
  for (const bool ahead : {false, true}) {
    StepModel own(model.shape, kGoldenBlocks, kGoldenContextTokens);
    own.set_options({true, false, true});
    constexpr std::int32_t kRoom = kPrompt + kSteps;
    std::vector<StepSequence> sequences = make_sequences({kRoom, kRoom, kRoom}, kGoldenBlocks);
    tokens[ahead].resize(3);
    const auto read = [&](std::int32_t step) {
      const std::vector<Draw>& drawn = own.end();
      for (std::int32_t i = 0; i < 3; ++i) {
        tokens[ahead][static_cast<std::size_t>((i + step) % 3)].push_back(
            drawn[static_cast<std::size_t>(i)].token);
      }
    };
    for (std::int32_t step = 0; step < kSteps; ++step) {
      Batch batch = begin_batch(kGoldenContextTokens / kStepBlockTokens);
      for (std::int32_t i = 0; i < 3; ++i) {
        const std::int32_t place = (i + step) % 3;
        StepSequence& sequence = sequences[static_cast<std::size_t>(place)];
        if (step == 0) {
          for (std::int32_t t = 0; t < kPrompt; ++t) {
            sequence.tokens.push_back((t * 13 + place * 7) % model.shape.vocab);
          }
          add_rows(&sequence, kPrompt, &batch);
        } else if (ahead) {
          add_drawn_row(&sequence, (i + 1) % 3, &batch);
        } else {
          sequence.tokens.push_back(tokens[ahead][static_cast<std::size_t>(place)].back());
          add_rows(&sequence, 1, &batch);
        }
      }
      own.begin(batch);
      if (!ahead) read(step);
      if (ahead && step > 0) read(step - 1);
    }
    if (ahead) read(kSteps - 1);
    check.expect(own.num_replayed_steps() > 0, "no step was replayed");
  }
  check.expect(tokens[0][0].size() == kSteps, "tokens are missing");
  check.expect(tokens[0] == tokens[1], "steps begun ahead draw other tokens");
}

// So many query heads to a kv head that decodes are wide. Nothing has launched the kernels of heads
// of this size before.
KERNEL_CHECK(steps_of_large_groups_are_recorded) {
  const ModelShape shape{"large groups", 2, 64, 64, 32, 1, 16, 64};
  StepModel own(shape, kGoldenBlocks, kGoldenContextTokens);
  std::vector<StepSequence> sequences = make_sequences({8, 8}, kGoldenBlocks);
  for (StepSequence& sequence : sequences) sequence.tokens = {1, 2, 3, 4, 5, 6, 7, 8};
  for (std::int32_t rows = 4; sequences[0].num_computed < 8; rows = 1) {
    Batch batch = begin_batch(kGoldenContextTokens / kStepBlockTokens);
    for (StepSequence& sequence : sequences) add_rows(&sequence, rows, &batch);
    own.run(batch);
  }
  check.expect(own.num_failed_recordings() == 0, "a recording failed");
  check.expect(own.num_replayed_steps() > 0, "no step was replayed");
}

// Memory that a recording holds addresses of moves: for a step of more rows, then for longer block
// tables.
KERNEL_CHECK(steps_are_recorded_again_when_memory_moves) {
  const GoldenModel& model = golden_models()[0];
  std::vector<std::vector<float>> logits[2];
  for (const bool records : {false, true}) {
    StepModel own(model.shape, kGoldenBlocks, kGoldenContextTokens);
    own.set_options({records, true});
    std::vector<StepSequence> sequences = make_sequences({40, 500}, kGoldenBlocks);
    for (std::int32_t i = 0; i < 500; ++i) {
      for (StepSequence& sequence : sequences) {
        sequence.tokens.push_back((i * 13 + i * i) % model.shape.vocab);
      }
    }
    for (std::int32_t step = 0; step < 18; ++step) {
      Batch batch = begin_batch(step < 6 ? 2 : step < 12 ? 16 : 32);
      add_rows(&sequences[0], 1, &batch);
      add_rows(&sequences[1], step == 6 ? 200 : 1, &batch);
      logits[records].push_back(own.run(batch));
    }
    check.expect(own.num_replayed_steps() >= (records ? 9 : 0), "too few steps were replayed");
  }
  check.expect(logits[0] == logits[1], "recordings of other addresses were replayed");
}

// Partial results that are too many for one launch are combined launch by launch.
KERNEL_CHECK(steps_in_parts_give_the_same_bits) {
  const GoldenModel& model = golden_models()[0];
  std::vector<std::vector<float>> logits[2];
  for (const bool has_parts : {false, true}) {
    StepModel own(model.shape, kGoldenBlocks, kGoldenContextTokens);
    if (has_parts) own.limit_partial_rows(1);
    // Two prompts whose decodes are split, and so in parts; the third's are not.
    std::vector<StepSequence> sequences = make_sequences({300, 310, 20}, kGoldenBlocks);
    for (StepSequence& sequence : sequences) {
      const auto room = static_cast<std::int32_t>(sequence.blocks.size()) * kStepBlockTokens;
      for (std::int32_t i = 0; i < room; ++i) {
        sequence.tokens.push_back((i * 13 + i * i) % model.shape.vocab);
      }
    }
    for (std::int32_t step = 0; step < 5; ++step) {
      Batch batch = begin_batch(kGoldenContextTokens / kStepBlockTokens);
      for (StepSequence& sequence : sequences) {
        const auto room = static_cast<std::int32_t>(sequence.tokens.size());
        add_rows(&sequence, step == 0 ? room - 5 : 1, &batch);
      }
      logits[has_parts].push_back(own.run(batch));
    }
    check.expect((own.num_replayed_steps() > 0) == !has_parts,
                 std::to_string(own.num_replayed_steps()) + " steps were replayed");
  }
  check.expect(logits[0] == logits[1], "parts change the logits");
}

// Whole requests: prompts in chunks, prefixes that are shared, draws of both kinds, ends.
KERNEL_CHECK(steps_of_engines_ahead_give_the_tokens_of_others) {
  const GoldenModel& model = golden_models()[0];
  std::vector<std::vector<TokenId>> tokens[2];
  for (const bool runs_ahead : {false, true}) {
    StepModel own(model.shape, kGoldenBlocks, kGoldenContextTokens);
    EngineOptions options;
    options.max_num_seqs = 4;
    options.max_num_batched_tokens = 64;
    options.max_context_tokens = kGoldenContextTokens;
    options.runs_ahead = runs_ahead;
    Engine engine(options, &own.transformer(), nullptr);
    for (RequestId id = 0; id < 6; ++id) {
      Request request;
      request.id = id;
      for (std::int32_t i = 0; i < 90; ++i) {
        request.prompt.push_back((i * 13 + i * i) % model.shape.vocab);
      }
      request.prompt.back() = static_cast<TokenId>(id);
      request.params.temperature = id % 2 == 0 ? 0.0f : 0.8f;
      request.params.frequency_penalty = id == 3 ? 0.5f : 0.0f;
      request.params.seed = id;
      request.params.max_tokens = 10 + static_cast<std::int32_t>(id);
      request.params.ignore_eos = true;
      engine.add(std::move(request));
    }
    tokens[runs_ahead].resize(6);
    while (engine.has_work()) {
      for (const RequestOutput& output : engine.step().finished) {
        check.expect(output.error.empty(), output.error);
        if (output.choices.empty()) continue;
        tokens[runs_ahead][output.id] = output.choices[0].token_ids;
      }
    }
    check.expect(own.num_replayed_steps() > 0, "no step was replayed");
  }
  for (std::size_t id = 0; id < 6; ++id) {
    check.expect(tokens[0][id].size() == 10 + id, "tokens are missing");
  }
  check.expect(tokens[0] == tokens[1], "an engine ahead gives other tokens");
}

KERNEL_CHECK(steps_replayed_give_the_bits_of_steps_sent) {
  const GoldenModel& model = golden_models()[0];
  std::vector<std::vector<float>> logits[2];
  for (const bool records : {false, true}) {
    StepModel own(model.shape, kGoldenBlocks, kGoldenContextTokens);
    own.set_options({records, true});
    run_golden(model, 1000, [&](const Batch& batch) -> std::vector<float>& {
      logits[records].push_back(own.run(batch));
      return logits[records].back();
    });
    check.expect(records ? own.num_replayed_steps() >= 4 : own.num_replayed_steps() == 0,
                 std::to_string(own.num_replayed_steps()) + " steps were replayed");
  }
  for (std::size_t i = 0; i < logits[0].size(); ++i) {
    check.expect(std::memcmp(logits[0][i].data(), logits[1][i].data(),
                             logits[0][i].size() * sizeof(float)) == 0,
                 "step " + std::to_string(i) + " differs");
  }
}

}  // namespace batchmill::testing
