// The merge operator behind counters and ledger: adds lists of numbers element by element. Owned by
// the database; RocksDB calls it from any thread.
#pragma once

#include <memory>

namespace rocksdb {
class MergeOperator;
}

namespace batchmill {

// Its name is part of the disk format. A value that is no list of numbers, or of another length,
// makes the read fail as damaged.
std::shared_ptr<rocksdb::MergeOperator> make_sum_operator();

}  // namespace batchmill
