#include "storage/record_codec.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "storage/error.h"
#include "tests/storage/store_fixture.h"

namespace batchmill {
namespace {

const codec::Place kPlace{"test", "key"};

class RandomRecords {
 public:
  std::uint64_t number() { return random_() >> (random_() % 64); }
  std::int64_t signed_number() { return static_cast<std::int64_t>(random_()); }
  bool flag() { return random_() % 2 == 0; }
  std::string text() {
    std::string out(random_() % 20, '\0');
    for (char& c : out) c = static_cast<char>(random_());
    return out;
  }
  LineUsage usage() {
    return {number(), number(), number(), number(), number(), number(), number(), number()};
  }
  JobRequest request() {
    JobRequest out;
    out.name = text();
    out.priority = static_cast<std::int32_t>(signed_number());
    out.strict = flag();
    out.deadline_s = signed_number();
    out.idempotency_key = text();
    out.content_hash = text();
    out.model_fingerprint = text();
    for (std::uint64_t i = number() % 4; i > 0; --i) out.metadata[text()] = text();
    if (flag()) out.owner = text();
    return out;
  }
  JobState state() {
    JobState out;
    out.upload = static_cast<UploadState>(1 + number() % 3);
    for (std::uint64_t* field :
         {&out.total_lines, &out.request_lines, &out.upload_offset_bytes, &out.prepared_through,
          &out.prefix_prompt_tokens, &out.prefix_trie_tokens}) {
      *field = number();
    }
    out.content_hash = text();
    out.paused = flag();
    out.strict_checked = flag();
    for (std::int64_t* field :
         {&out.created_at_s, &out.in_progress_at_s, &out.finalizing_at_s, &out.completed_at_s,
          &out.failed_at_s, &out.expired_at_s, &out.cancelling_at_s, &out.cancelled_at_s}) {
      *field = signed_number();
    }
    out.end_code = text();
    out.end_message = text();
    for (std::uint64_t i = number() % 4; i > 0; --i)
      out.errors.push_back({text(), text(), number()});
    for (std::uint64_t i = number() % 4; i > 0; --i) out.warnings.push_back(text());
    return out;
  }
  LineResult result(const LineKey& key) {
    LineResult out;
    out.key = key;
    out.attempt = static_cast<std::uint32_t>(number());
    out.outcome = flag() ? LineOutcome::kCompleted : LineOutcome::kFailed;
    out.custom_id = text();
    out.has_custom_id = flag();
    out.error_code = text();
    out.output = text();
    out.model = text();
    out.device = text();
    out.usage = usage();
    out.times = {signed_number(), signed_number(), signed_number(), signed_number()};
    out.price = {text(), text(), signed_number(), signed_number(), signed_number()};
    return out;
  }
  PlanEntry entry(std::size_t first_ids) {
    PlanEntry out;
    out.key.line = number();
    out.key.job.bytes[3] = static_cast<std::uint8_t>(number());
    out.model = text();
    out.fingerprint = kFingerprint;
    out.priority = static_cast<std::int32_t>(number() % 21) - 10;
    out.short_lane = flag();
    out.prompts.push_back(ids(first_ids));
    for (std::uint64_t i = number() % 3; i > 0; --i) out.prompts.push_back(ids(number() % 9));
    out.num_choices = static_cast<std::uint32_t>(number());
    out.max_tokens = static_cast<std::uint32_t>(number());
    out.request = text();
    return out;
  }
  std::vector<std::int32_t> ids(std::size_t size) {
    std::vector<std::int32_t> out(size);
    for (std::int32_t& id : out) id = static_cast<std::int32_t>(random_() % ((1u << 24) - 1));
    return out;
  }
  std::string mangle(std::string bytes) {
    switch (random_() % 3) {
      case 0:
        return bytes.substr(0, random_() % bytes.size());
      case 1:
        return bytes + text() + "x";
      default:
        for (std::uint64_t i = 1 + random_() % 4; i > 0; --i) {
          bytes[random_() % bytes.size()] = static_cast<char>(random_());
        }
        return bytes;
    }
  }

 private:
  std::mt19937_64 random_{11};
};

// Whatever the bytes are, decoding returns or throws kDamaged; a sanitizer build sees the rest.
void expect_survives(const std::string& bytes,
                     const std::function<void(const std::string&)>& decode) {
  try {
    decode(bytes);
  } catch (const StorageError& error) {
    EXPECT_EQ(error.kind(), StorageError::Kind::kDamaged);
    EXPECT_NE(std::string(error.what()).find("column family test, key"), std::string::npos);
  }
}

// Every strict prefix of a record and every record with a byte behind it is damaged.
void expect_exact(const std::string& bytes, const std::function<void(const std::string&)>& decode) {
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_EQ(error_kind([&] { decode(bytes.substr(0, size)); }), StorageError::Kind::kDamaged);
  }
  EXPECT_EQ(error_kind([&] { decode(bytes + "x"); }), StorageError::Kind::kDamaged);
  std::string other_version = bytes;
  other_version[0] = 99;
  EXPECT_EQ(error_kind([&] { decode(other_version); }), StorageError::Kind::kDamaged);
}

// Stores of before owners were known hold version 1, and a job of the operator is still written so.
TEST(RecordCodecTest, AJobWithoutAnOwnerIsARecordOfBefore) {
  JobRequest request;
  request.name = "n";
  EXPECT_EQ(codec::encode_request(request)[0], 1);
  EXPECT_EQ(codec::decode_request(kPlace, codec::encode_request(request)), request);
  request.owner = "somebody";
  EXPECT_EQ(codec::encode_request(request)[0], 2);
  EXPECT_EQ(codec::decode_request(kPlace, codec::encode_request(request)).owner, "somebody");
}

TEST(RecordCodecTest, JobRecordsReadBackAndSurviveDamage) {
  RandomRecords random;
  for (int i = 0; i < 100; ++i) {
    const JobRequest request = random.request();
    const std::string request_bytes = codec::encode_request(request);
    const auto decode_request = [](const std::string& b) {
      (void)codec::decode_request(kPlace, b);
    };
    EXPECT_EQ(codec::decode_request(kPlace, request_bytes), request);
    expect_exact(request_bytes, decode_request);

    const JobState state = random.state();
    const std::string upload_bytes = codec::encode_upload(state);
    const std::string progress_bytes = codec::encode_progress(state);
    JobState read;
    codec::decode_upload(kPlace, upload_bytes, read);
    codec::decode_progress(kPlace, progress_bytes, read);
    EXPECT_EQ(read, state);
    const auto decode_upload = [](const std::string& b) {
      JobState out;
      codec::decode_upload(kPlace, b, out);
    };
    const auto decode_progress = [](const std::string& b) {
      JobState out;
      codec::decode_progress(kPlace, b, out);
    };
    expect_exact(upload_bytes, decode_upload);
    expect_exact(progress_bytes, decode_progress);
    for (int j = 0; j < 50; ++j) {
      expect_survives(random.mangle(request_bytes), decode_request);
      expect_survives(random.mangle(upload_bytes), decode_upload);
      expect_survives(random.mangle(progress_bytes), decode_progress);
    }
  }
}

TEST(RecordCodecTest, ResultsReadBackAndSurviveDamage) {
  RandomRecords random;
  for (int i = 0; i < 200; ++i) {
    const LineKey key{{}, random.number()};
    const LineResult result = random.result(key);
    const std::uint64_t sequence = random.number();
    const std::string bytes = codec::encode_result(result, sequence);
    std::uint64_t read_sequence = 0;
    EXPECT_EQ(codec::decode_result(kPlace, bytes, key, &read_sequence), result);
    EXPECT_EQ(read_sequence, sequence);
    const auto decode = [&](const std::string& b) {
      (void)codec::decode_result(kPlace, b, key, nullptr);
    };
    expect_exact(bytes, decode);
    for (int j = 0; j < 50; ++j) expect_survives(random.mangle(bytes), decode);
  }
}

TEST(RecordCodecTest, PlanEntriesReadBackWhateverTheirLength) {
  RandomRecords random;
  for (std::size_t size : {0, 1, 2, 63, 1023, 1024, 1025, 1087, 1088, 1089, 5000}) {
    const PlanEntry entry = random.entry(size);
    const std::string key = make_plan_key(entry);
    const codec::Place place{"test", key};
    const std::string bytes = codec::encode_plan_entry(entry, 77);
    const PlanEntry read = codec::decode_plan_entry(place, bytes);
    EXPECT_EQ(read.key, entry.key);
    EXPECT_EQ(read.model, entry.model);
    EXPECT_EQ(read.fingerprint, entry.fingerprint);
    EXPECT_EQ(read.priority, entry.priority);
    EXPECT_EQ(read.short_lane, entry.short_lane);
    EXPECT_EQ(read.prompts, entry.prompts);
    EXPECT_EQ(read.num_choices, entry.num_choices);
    EXPECT_EQ(read.max_tokens, entry.max_tokens);
    EXPECT_EQ(read.request, entry.request);
    const PlanItem item = codec::decode_plan_item(place, bytes);
    EXPECT_EQ(item.serial, 77u);
    EXPECT_EQ(item.line, entry.key);
    EXPECT_EQ(item.key, key);
    std::uint64_t num_tokens = 0;
    for (const auto& prompt : entry.prompts) num_tokens += prompt.size();
    EXPECT_EQ(item.num_prompt_tokens, num_tokens);
    for (int j = 0; j < 200; ++j) {
      expect_survives(random.mangle(bytes),
                      [&](const std::string& b) { (void)codec::decode_plan_entry(place, b); });
      expect_survives(random.mangle(key), [&](const std::string& k) {
        (void)codec::decode_plan_entry({"test", k}, bytes);
      });
    }
  }
}

TEST(RecordCodecTest, RefusesWhatItWouldNotWrite) {
  RandomRecords random;
  JobRequest request;
  request.metadata = {{"a", "1"}, {"b", "2"}};
  std::string bytes = codec::encode_request(request);
  bytes[bytes.find('b')] = 'a';  // a key twice
  EXPECT_THROW((void)codec::decode_request(kPlace, bytes), StorageError);
  request.owner = "o";
  bytes = codec::encode_request(request);
  bytes.pop_back();
  bytes[bytes.size() - sizeof(std::uint32_t)] = 0;  // an owner of no bytes
  EXPECT_THROW((void)codec::decode_request(kPlace, bytes), StorageError);

  // A second place for ids that the key holds, and a sum that is none.
  const PlanEntry entry = random.entry(3);
  const std::string key = make_plan_key(entry);
  PlanEntry longer = entry;
  longer.prompts = {entry.prompts.front()};
  bytes = codec::encode_plan_entry(longer, 1);
  bytes[bytes.size() - 1] = 4;
  bytes[12] = 4;
  EXPECT_THROW((void)codec::decode_plan_entry({"test", key}, bytes + "abc"), StorageError);
  bytes[bytes.size() - 1] = 3;
  bytes[12] = 9;
  EXPECT_THROW((void)codec::decode_plan_entry({"test", key}, bytes), StorageError);

  // Counts are never negative and fit 64 bits.
  for (const Picos number : {Picos{-1}, Picos{1} << 64}) {
    std::vector<Picos> counters(11);
    EXPECT_EQ(codec::decode_counters(kPlace, codec::encode_sums(counters)), JobCounters());
    counters[3] = number;
    EXPECT_THROW((void)codec::decode_counters(kPlace, codec::encode_sums(counters)), StorageError);
  }
}

TEST(RecordCodecTest, SumsReadBack) {
  RandomRecords random;
  for (int i = 0; i < 100; ++i) {
    const JobCounters counters{random.number(), random.number(), random.usage(), random.number()};
    EXPECT_EQ(codec::decode_counters(kPlace, codec::encode_counters(counters)), counters);
    LedgerRow row;
    row.completed = random.number();
    row.failed = random.number();
    row.usage = random.usage();
    row.cost_prompt = static_cast<Picos>(random.number()) * random.signed_number();
    row.cost_prompt_cached = -1;
    row.cost_completion = static_cast<Picos>(random.number()) << 60;
    const std::string bytes = codec::encode_ledger(row);
    EXPECT_EQ(codec::decode_ledger(kPlace, bytes), row);
    expect_exact(bytes, [](const std::string& b) { (void)codec::decode_ledger(kPlace, b); });
  }
}

TEST(RecordCodecTest, LinesReadBackByteForByte) {
  RandomRecords random;
  for (int i = 0; i < 100; ++i) {
    StoredLine line{random.number(), random.text(), random.flag()};
    const std::string bytes = codec::encode_line_head(line, 55) + line.bytes;
    const StoredLine read = codec::decode_line(kPlace, bytes, line.line);
    EXPECT_EQ(read.bytes, line.bytes);
    EXPECT_EQ(read.too_long, line.too_long);
    EXPECT_EQ(read.queued_us, 55);
  }
}

TEST(StoredLineTest, BlankIsWhiteSpaceMaybeBehindAByteOrderMark) {
  for (const char* text : {"", " ", "\t\r", "\xEF\xBB\xBF", "\xEF\xBB\xBF \r"}) {
    EXPECT_TRUE((StoredLine{1, text}.is_blank())) << text;
  }
  for (const char* text : {"x", " {}", "\xEF\xBB", "\xC2\xA0"}) {
    EXPECT_FALSE((StoredLine{1, text}.is_blank())) << text;
  }
  EXPECT_FALSE((StoredLine{1, " ", true}.is_blank()));
}

}  // namespace
}  // namespace batchmill
