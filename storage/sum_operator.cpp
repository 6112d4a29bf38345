#include "storage/sum_operator.h"

#include <rocksdb/merge_operator.h>

#include <string_view>
#include <vector>

#include "storage/record_codec.h"

namespace batchmill {
namespace {

__extension__ using UnsignedPicos = unsigned __int128;

class SumOperator : public rocksdb::AssociativeMergeOperator {
 public:
  bool Merge(const rocksdb::Slice& /*key*/, const rocksdb::Slice* existing,
             const rocksdb::Slice& value, std::string* sum,
             rocksdb::Logger* /*logger*/) const override {
    std::vector<Picos> numbers;
    if (!codec::try_decode_sums({value.data(), value.size()}, numbers)) return false;
    if (existing != nullptr) {
      std::vector<Picos> before;
      if (!codec::try_decode_sums({existing->data(), existing->size()}, before) ||
          before.size() != numbers.size()) {
        return false;
      }
      for (std::size_t i = 0; i < numbers.size(); ++i) {
        numbers[i] = static_cast<Picos>(static_cast<UnsignedPicos>(numbers[i]) +
                                        static_cast<UnsignedPicos>(before[i]));
      }
    }
    *sum = codec::encode_sums(numbers);
    return true;
  }

  const char* Name() const override { return "batchmill.sums.1"; }
};

}  // namespace

std::shared_ptr<rocksdb::MergeOperator> make_sum_operator() {
  return std::make_shared<SumOperator>();
}

}  // namespace batchmill
