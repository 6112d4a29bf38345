#include "cuda/sampler_kernels.h"

#include "cuda/launch.h"
#include "cuda/sampler_list.h"
#include "cuda/sampler_search.h"

namespace batchmill {
namespace {

constexpr float kInfinity = __builtin_huge_valf();
constexpr float kMaxLogit = 1e30f;
// So many of the threads' best make a list that has room for all that are as good.
constexpr int kListDepth = kSampleThreads / 2;
constexpr unsigned kInPrompt = 0x80000000u;  // of `seen`; the other bits count generated tokens

// Philox4x32-10 as in engine/philox.h: the number in [0, 1) of (seed, choice, position).
__device__ double uniform_of(const SampleRow& row) {
  unsigned counter[4] = {row.position, row.choice, 0, 0};
  unsigned key[2] = {static_cast<unsigned>(row.seed), static_cast<unsigned>(row.seed >> 32)};
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const unsigned high0 = __umulhi(0xD2511F53u, counter[0]);
    const unsigned low0 = 0xD2511F53u * counter[0];
    const unsigned high1 = __umulhi(0xCD9E8D57u, counter[2]);
    const unsigned low1 = 0xCD9E8D57u * counter[2];
    counter[0] = high1 ^ counter[1] ^ key[0];
    counter[1] = low1;
    counter[2] = high0 ^ counter[3] ^ key[1];
    counter[3] = low0;
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  const auto wide = static_cast<unsigned long long>(counter[0]) << 32 | counter[1];
  return static_cast<double>(wide >> 11) * 0x1.0p-53;
}

struct Best {  // shared
  Entry best[kSampleWarps];
  int is_bad;
};

// The largest value's token, or -1 if a value is NaN or +infinity or none is finite. `own`: the
// best that this thread saw.
__device__ int best_token(const RowSearch& row, Best* shared, Entry* own) {
  if (threadIdx.x == 0) shared->is_bad = 0;
  __syncthreads();
  Entry best = 0;
  bool is_bad = false;
  row.each<16>([&](int token, float value) {
    is_bad |= !(value < kInfinity);
    best = max(best, entry_of(token, key_of(value)));
  });
  *own = best;
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    best = max(best, __shfl_xor_sync(kWholeWarp, best, distance));
  }
  if (threadIdx.x % 32 == 0) shared->best[threadIdx.x / 32] = best;
  if (is_bad) atomicMax(&shared->is_bad, 1);
  __syncthreads();
  Entry all = 0;
#pragma unroll
  for (int i = 0; i < kSampleWarps; ++i) all = max(all, shared->best[i]);
  const bool any_bad = shared->is_bad != 0;
  __syncthreads();
  if (any_bad || !(value_of(key_of_entry(all)) > -kInfinity)) return -1;
  return token_of(all);
}

// Biases, then suppressed tokens, then penalties.
__device__ void change_logits(const SamplerArguments& arguments, const SampleRow& row,
                              const float* logits, float* changed, unsigned* seen) {
  const int thread = static_cast<int>(threadIdx.x);
  const auto is_token = [&](int token) { return token >= 0 && token < arguments.vocab; };
  for (int i = thread; i < arguments.vocab; i += kSampleThreads) {
    changed[i] = logits[i];
    seen[i] = 0;
  }
  __syncthreads();
  if (thread == 0) {  // in their order: a token may be there twice
    for (int i = row.bias_begin; i < row.bias_begin + row.num_biases; ++i) {
      const int token = arguments.bias_tokens[i];
      if (is_token(token)) changed[token] += arguments.biases[i];
    }
    for (int i = row.suppressed_begin; i < row.suppressed_begin + row.num_suppressed; ++i) {
      const int token = arguments.tokens[i];
      if (is_token(token)) changed[token] = -kInfinity;
    }
  }
  const int* tokens = arguments.tokens + row.tokens_begin;
  for (int i = thread; i < row.num_prompt + row.num_generated; i += kSampleThreads) {
    if (!is_token(tokens[i])) continue;
    if (i < row.num_prompt) {
      atomicOr(&seen[tokens[i]], kInPrompt);
    } else {
      atomicAdd(&seen[tokens[i]], 1u);
    }
  }
  __syncthreads();
  for (int i = thread; i < arguments.vocab; i += kSampleThreads) {
    const unsigned own = seen[i];
    if (own == 0) continue;
    float x = changed[i];
    if (row.repetition_penalty != 1.0f && x != -kInfinity) {
      x = x > 0.0f ? x / row.repetition_penalty : x * row.repetition_penalty;
      x = fminf(fmaxf(x, -kMaxLogit), kMaxLogit);
    }
    const unsigned count = own & ~kInPrompt;
    if (count > 0) {
      x -= add_rounded(multiply_rounded(row.frequency_penalty, static_cast<float>(count)),
                       row.presence_penalty);
    }
    changed[i] = x;
  }
  __syncthreads();
}

// Which tokens may be drawn: those of larger values than `key`, and those of just this value up to
// `last_token`; none below `floor_key`.
struct Candidates {
  unsigned key = 0;
  int last_token = 0x7FFFFFFF;
  unsigned floor_key = 0;
  __device__ bool holds(int token, unsigned other) const {
    return other >= floor_key && (other > key || (other == key && token <= last_token));
  }
};

// Which candidate a row's random number means of `sum`.
__device__ Mass target_of(const SampleRow& row, Mass sum) {
  const auto target = static_cast<Mass>(uniform_of(row) * static_cast<double>(sum));
  return target < sum ? target : sum - 1;
}
// Where the best that reach top_p together end.
__device__ Mass cut_of(const SampleRow& row, Mass total) {
  const auto wanted = static_cast<Mass>(
      ceil(static_cast<double>(fminf(row.top_p, 1.0f)) * static_cast<double>(total)));
  return wanted > total ? total - 1 : wanted > 0 ? wanted - 1 : 0;
}
__device__ bool has_top_k(const SampleRow& row, int count) {
  return row.top_k > 0 && row.top_k < count;
}
__device__ bool has_min_p(const SampleRow& row) { return row.min_p_distance > -kInfinity; }
__device__ unsigned floor_of(const SampleRow& row, float largest) {
  return has_min_p(row) ? key_of(largest + row.min_p_distance) : 0;
}

// What draw() draws, for rows whose candidates are among their best few; -1 if they may not be.
// `own`: as of best_token().
__device__ int draw_from_best(const RowSearch& search, const SampleRow& row, const Weights& weights,
                              Entry own, ListMemory* memory) {
  const bool of_k = has_top_k(row, search.count());
  const unsigned floor_key = floor_of(row, weights.largest);
  if (of_k && row.top_k > kListDepth) return -1;
  const auto mass_of = [&](unsigned key) -> Mass { return key >= floor_key ? weights.of(key) : 0; };

  // Step 1: all that are as good as the last of the best threads' best.
  BestList list(memory);
  list.sort(own, min(search.count(), kSampleThreads));
  const Entry limit = list.of_rank((of_k ? row.top_k : kListDepth) - 1);
  Mass all = 0;
  const bool fits = list.collect(search, limit, [&](int, unsigned key) {
    if (!of_k) all += mass_of(key);
  });
  if (!fits) return -1;
  const bool is_listed = list.entry() != 0 && (!of_k || static_cast<int>(threadIdx.x) < row.top_k);
  const Mass listed = list.accumulate(is_listed ? mass_of(key_of_entry(list.entry())) : 0);
  Mass total = of_k ? listed : list.sum_over_block(all);

  // Step 2: the best that reach p together.
  unsigned last_key = 0;
  if (row.top_p < 1.0f || !of_k) {
    const BestList::Place last = list.find(cut_of(row, total));
    if (last.entry == 0) return -1;
    last_key = key_of_entry(last.entry);
    total = last.running;
  }

  // Step 3: draw, in draw()'s order.
  const Mass target = target_of(row, total);
  if (!of_k) {
    const int last_bucket = weights.bucket_of(last_key);
    const unsigned key = key_of_entry(list.entry());
    const bool is_upper = list.own_mass() != 0 && weights.bucket_of(key) < last_bucket;
    if (target < list.sum_over_block(is_upper ? list.own_mass() : 0)) {
      const auto place = static_cast<Entry>(static_cast<unsigned>(list.entry())) << 32;
      list.sort(is_upper ? place | key : 0, list.count());
      list.accumulate(list.entry() != 0 ? mass_of(static_cast<unsigned>(list.entry())) : 0);
      return static_cast<int>(~key_of_entry(list.find(target).entry));
    }
  }
  return token_of(list.find(target).entry);
}

// The candidate at which the running sum of weights exceeds the target, best first.
template <typename MassOf>
__device__ int draw_by_value(RowSearch& search, const Weights& weights, const MassOf& mass,
                             Mass target) {
  const ValuePlace place = search.by_value(weights, mass, target);
  const Mass ties_before = (target - place.above) / weights.of(place.key);
  return search.by_token(
      [&](int token, unsigned key) -> Mass {
        return key == place.key && mass(token, key) != 0 ? 1 : 0;
      },
      ties_before);
}

__device__ int draw(RowSearch& search, const SampleRow& row, const Weights& weights) {
  Candidates candidates;
  candidates.floor_key = floor_of(row, weights.largest);
  const auto mass = [&](int token, unsigned key) -> Mass {
    return candidates.holds(token, key) ? weights.of(key) : 0;
  };

  // Step 1: the k best.
  const bool of_k = has_top_k(row, search.count());
  if (of_k) {
    const auto all = [](int, unsigned) -> Mass { return 1; };
    const ValuePlace place = search.by_value(weights, all, static_cast<Mass>(row.top_k - 1));
    candidates.last_token =
        search.by_token([&](int, unsigned key) -> Mass { return key == place.key ? 1 : 0; },
                        static_cast<Mass>(row.top_k - 1) - place.above);
    candidates.key = place.key;
  }
  Mass total = search.sum_segments(mass);

  // Step 2: the best that reach p together.
  if (row.top_p < 1.0f || !of_k) {
    const Mass target = cut_of(row, total);
    const ValuePlace place = search.by_value(weights, mass, target);
    const Mass ties_before = (target - place.above) / weights.of(place.key);
    const int last = search.by_token(
        [&](int token, unsigned key) -> Mass {
          return key == place.key && candidates.holds(token, key) ? 1 : 0;
        },
        ties_before);
    candidates.last_token = last;
    candidates.key = place.key;
    total = place.above + (ties_before + 1) * weights.of(place.key);
  }

  // Step 3: draw, best first; without top-k the tokens above the bucket of logarithms where the
  // set ends come first, in their own order.
  const Mass target = target_of(row, total);
  if (of_k) return draw_by_value(search, weights, mass, target);
  const int last_bucket = weights.bucket_of(candidates.key);
  const auto upper = [&](int token, unsigned key) -> Mass {
    return weights.bucket_of(key) < last_bucket ? mass(token, key) : 0;
  };
  const Mass upper_total = search.sum_segments(upper);
  if (target < upper_total) return search.find_token(upper, target);
  const auto lower = [&](int token, unsigned key) -> Mass {
    return weights.bucket_of(key) == last_bucket ? mass(token, key) : 0;
  };
  return draw_by_value(search, weights, lower, target - upper_total);
}

// Grid: rows. Two blocks beside each other.
__global__ void __launch_bounds__(kSampleThreads, 2) sample_kernel(SamplerArguments arguments) {
  SHARED_ARRAY(SearchMemory, memory, 1);
  SHARED_ARRAY(ListMemory, list_memory, 1);
  SHARED_ARRAY(Best, best, 1);
  const SampleRow row = arguments.rows[blockIdx.x];
  const float* logits = arguments.logits + static_cast<long long>(row.logits_row) * arguments.vocab;
  Entry own;
  int token = best_token(RowSearch(logits, arguments.vocab, memory), best, &own);
  if (token >= 0 && row.changed_row >= 0) {
    const long long offset = static_cast<long long>(row.changed_row) * arguments.vocab;
    float* changed = arguments.changed + offset;
    change_logits(arguments, row, logits, changed, arguments.seen + offset);
    logits = changed;
    token = best_token(RowSearch(logits, arguments.vocab, memory), best, &own);
  }
  // A temperature that no float can divide by is as good as greedy.
  const bool is_greedy =
      row.temperature <= 0.0f || !(1.0f / row.temperature < kInfinity) || row.top_k == 1;
  if (token >= 0 && !is_greedy) {
    RowSearch search(logits, arguments.vocab, memory);
    const Weights weights{logits[token], 1.0f / row.temperature};
    if (row.top_p >= 1.0f && !has_min_p(row) && !has_top_k(row, arguments.vocab)) {
      const auto mass = [&](int, unsigned key) { return weights.of(key); };
      const Mass total = search.sum_segments(mass);
      token = search.find_token(mass, target_of(row, total));
    } else {
      token = draw_from_best(search, row, weights, own, list_memory);
      if (token < 0) token = draw(search, row, weights);
    }
  }
  if (threadIdx.x == 0) arguments.chosen[blockIdx.x] = token;
}

}  // namespace

void launch_sample(const SamplerArguments& arguments, int rows, StreamHandle stream) {
  if (rows == 0) return;
  launch(sample_kernel, static_cast<unsigned>(rows), kSampleThreads, 0, stream, arguments);
}

}  // namespace batchmill
