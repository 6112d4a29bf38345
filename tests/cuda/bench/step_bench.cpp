// Whole steps of models with random weights, with and without recordings; with logits left on the
// device, brought to the host, or drawn from there; begun when the one before has been read, or
// ahead of that. The same by the Engine, whose own work is between two steps then, or beside one.
#include <memory>

#include "engine/engine.h"
#include "tests/cuda/bench/bench.h"
#include "tests/cuda/step_model.h"

namespace batchmill::testing {
namespace {

struct Workload {
  ModelShape shape;
  std::optional<double> decode_goal;  // at one sequence, with recordings, without logits
};

std::vector<StepSequence> prepared(int count, int context, int room, int num_blocks, int vocab) {
  std::vector<StepSequence> sequences =
      make_sequences(std::vector<std::int32_t>(static_cast<std::size_t>(count), room), num_blocks);
  for (StepSequence& sequence : sequences) {
    for (int i = 0; i < room; ++i) sequence.tokens.push_back(i * 31 % vocab);
    sequence.num_computed = context;
  }
  return sequences;
}

void bench_decode(Bench* bench, StepModel* model, const Workload& workload, int count, int context,
                  int num_blocks) {
  for (const StepOptions& options :
       {StepOptions{true, false, false}, StepOptions{false, false, false},
        StepOptions{true, true, false}, StepOptions{true, false, true}}) {
    const std::string name =
        std::string(workload.shape.name) + " decode, " + std::to_string(count) + " at " +
        std::to_string(context) + (options.records ? "" : ", not recorded") +
        (options.downloads ? ", logits to host" : "") + (options.draws ? ", tokens to host" : "");
    if (!bench->wants(name)) continue;
    model->set_options(options);
    // The step is always the same one: its token takes its own place again.
    std::vector<StepSequence> sequences =
        prepared(count, context, context + 1, num_blocks, workload.shape.vocab);
    Batch batch = begin_batch((context + kStepBlockTokens) / kStepBlockTokens);
    for (StepSequence& sequence : sequences) add_rows(&sequence, 1, &batch);
    const double bytes = static_cast<double>(model->weight_bytes()) +
                         model->kv_bytes(static_cast<double>(count) * context);
    const bool has_goal = count == 1 && options.records && !options.downloads && !options.draws;
    for (int i = 0; i < 3; ++i) model->run(batch);  // seen, recorded, replayed
    bench->step(name, {bytes, 0, has_goal ? workload.decode_goal : std::nullopt},
                [&] { model->run(batch); });
  }
}

// The host has the tokens of one step while the device computes the next.
void bench_ahead(Bench* bench, StepModel* model, const Workload& workload, int count, int context,
                 int num_blocks) {
  const std::string name = std::string(workload.shape.name) + " decode, " + std::to_string(count) +
                           " at " + std::to_string(context) + ", tokens to host, ahead";
  if (!bench->wants(name)) return;
  model->set_options({true, false, true});
  std::vector<StepSequence> sequences =
      prepared(count, context, context + 1, num_blocks, workload.shape.vocab);
  Batch batch = begin_batch((context + kStepBlockTokens) / kStepBlockTokens);
  for (StepSequence& sequence : sequences) add_rows(&sequence, 1, &batch);
  for (int i = 0; i < 3; ++i) model->run(batch);
  model->begin(batch);
  Batch ahead = begin_batch(batch.max_blocks);
  for (int i = 0; i < count; ++i) {
    StepSequence& sequence = sequences[static_cast<std::size_t>(i)];
    sequence.num_computed = context;
    add_drawn_row(&sequence, i, &ahead);
  }
  const double bytes = static_cast<double>(model->weight_bytes()) +
                       model->kv_bytes(static_cast<double>(count) * context);
  bench->step(name, {bytes, 0, {}}, [&] {
    model->begin(ahead);
    model->end();
  });
  model->end();
}

// Steps of an engine in which `count` sequences decode, from a quarter of the context on.
void bench_engine(Bench* bench, StepModel* model, const Workload& workload, int count,
                  int context) {
  for (const bool runs_ahead : {false, true}) {
    const std::string name = std::string(workload.shape.name) + " engine, " +
                             std::to_string(count) + " decodes" + (runs_ahead ? ", ahead" : "");
    if (!bench->wants(name)) continue;
    model->set_options({true, false, true});
    EngineOptions options;
    options.max_num_seqs = count;
    options.max_context_tokens = context;
    options.generation_reserve_tokens = context;
    options.runs_ahead = runs_ahead;
    Engine engine(options, &model->transformer(), nullptr);
    for (int i = 0; i < count; ++i) {
      Request request;
      request.id = static_cast<RequestId>(i);
      request.prompt.assign(static_cast<std::size_t>(context / 4), 1);
      request.prompt.front() = i % workload.shape.vocab;
      request.params.temperature = 0.0f;
      request.params.max_tokens = context;
      request.params.ignore_eos = true;
      engine.add(std::move(request));
    }
    while (engine.step().num_tokens != count) {
    }
    for (int i = 0; i < 3; ++i) engine.step();
    bench->step(name, {}, [&] { engine.step(); });
  }
}

void bench_prefill(Bench* bench, StepModel* model, const Workload& workload, int tokens,
                   int num_blocks) {
  const std::string name =
      std::string(workload.shape.name) + " prefill of " + std::to_string(tokens);
  if (!bench->wants(name)) return;
  model->set_options({true, false, false});
  std::vector<StepSequence> sequences = prepared(1, 0, tokens, num_blocks, workload.shape.vocab);
  Batch batch = begin_batch((tokens + kStepBlockTokens - 1) / kStepBlockTokens);
  add_rows(&sequences[0], tokens, &batch);
  const ModelConfig& config = model->config();
  const double layers =
      static_cast<double>(model->weight_bytes()) - 2.0 * config.hidden_size * config.vocab_size;
  const double attention = 2.0 * config.num_layers * config.num_heads * config.head_dim *
                           static_cast<double>(tokens) * tokens;
  bench->step(name, {0, layers * tokens + attention}, [&] { model->run(batch); });
}

}  // namespace

void bench_steps(Bench* bench) {
  const bool tiny = bench->is_tiny();
  const std::vector<Workload> workloads =
      tiny ? std::vector<Workload>{{{"tiny", 2, 64, 128, 4, 2, 16, 256}, {}}}
           : std::vector<Workload>{{{"0.5B", 24, 896, 4864, 14, 2, 64, 151936, true, true}, {}},
                                   {{"1B", 16, 2048, 8192, 32, 8, 64, 128256, true}, 0.6},
                                   {{"8B", 32, 4096, 14336, 32, 8, 128, 128256}, 0.8}};
  const int context = tiny ? 20 : 1024;
  const int prompt = tiny ? 40 : 4096;
  const std::vector<int> counts = tiny ? std::vector<int>{1, 3} : std::vector<int>{1, 8, 64};
  for (const Workload& workload : workloads) {
    const std::string name = workload.shape.name;
    if (!bench->wants(name + " decode and prefill") && !bench->filter().starts_with(name)) continue;
    const int num_blocks =
        std::max(counts.back() * (context / kStepBlockTokens + 2), prompt / kStepBlockTokens + 1);
    StepModel model(workload.shape, num_blocks, 2 * prompt);
    for (const int count : counts) {
      bench_decode(bench, &model, workload, count, context, num_blocks);
      bench_ahead(bench, &model, workload, count, context, num_blocks);
      bench_engine(bench, &model, workload, count, context);
    }
    bench_prefill(bench, &model, workload, prompt, num_blocks);
  }
}

}  // namespace batchmill::testing
