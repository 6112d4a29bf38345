// What can be saved of a damaged store that nobody else uses (check_tables() in store_care.h says
// what is damaged). One thread.
#pragma once

#include <memory>
#include <string>

#include "storage/job_store.h"

namespace batchmill {

// Opens a store whose log is damaged as it was before the damage: what the log held behind it is
// lost. Tables are not compacted, as one may be damaged. Everything else as JobStore::open() to
// write.
std::unique_ptr<JobStore> open_up_to_damage(const std::string& directory,
                                            const StorageOptions& options);

}  // namespace batchmill
