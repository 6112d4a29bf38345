#include "engine/batch.h"

namespace batchmill {

void Batch::clear() {
  token_ids.clear();
  drawn_tokens.clear();
  positions.clear();
  slot_mapping.clear();
  cu_seqlens.clear();
  context_lens.clear();
  block_tables.clear();
  max_blocks = 0;
  logits_rows.clear();
  copies.clear();
}

}  // namespace batchmill
