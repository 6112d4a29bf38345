// Blocks of 4 tokens; tokens are letters. Expected trees are drawn: one node a line, children
// indented under their parent, "?" behind pending nodes.
#include "engine/prefix_tree.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <string_view>

namespace batchmill {
namespace {

class PrefixTreeTest : public ::testing::Test {
 protected:
  static std::vector<TokenId> ids(std::string_view letters) {
    return {letters.begin(), letters.end()};
  }

  // Adds a text block by block, the unfinished last one too; returns the references, like a
  // sequence.
  std::vector<BlockRef> insert(std::string_view text) {
    std::vector<BlockRef> blocks;
    auto node = tree_.root();
    for (std::size_t i = 0; i < text.size(); i += 4) {
      const auto content = ids(text.substr(i, 4));
      blocks.push_back(pool_.allocate());
      EXPECT_TRUE(blocks.back());
      if (content.size() < 4) {
        tree_.insert_partial(node, content, blocks.back(), /*pending=*/true);
      } else {
        node = tree_.insert_full(node, content, blocks.back());
        blocks.back() = tree_.share(node);
      }
    }
    return blocks;
  }

  std::string draw() const {
    std::string drawing = "\n";
    draw(tree_.root(), 0, &drawing);
    return drawing;
  }

  void draw(PrefixTree::NodeId node, std::size_t indent, std::string* drawing) const {
    for (const auto child : tree_.children(node)) {
      drawing->append(indent, ' ');
      for (const TokenId token : tree_.tokens(child)) drawing->push_back(static_cast<char>(token));
      if (tree_.is_pending(child)) drawing->push_back('?');
      drawing->push_back('\n');
      draw(child, indent + 2, drawing);
    }
  }

  // Tokens of `text` that a sequence could take now.
  std::int32_t matched(std::string_view text) const {
    auto node = tree_.root();
    std::int32_t count = 0;
    while (text.size() >= 4) {
      const auto child = tree_.find_full(node, ids(text.substr(0, 4)));
      if (child == kNoBlock) break;
      node = child;
      text.remove_prefix(4);
      count += 4;
    }
    return count + tree_.find_partial(node, ids(text.substr(0, 4))).num_tokens;
  }

  BlockPool pool_{16};
  PrefixTree tree_{&pool_, 4};
};

TEST_F(PrefixTreeTest, HoldsACommonPrefixOnce) {
  insert("abcdefghijkl");
  insert("abcdefghmnop");
  insert("abcdxyz");
  tree_.commit();
  EXPECT_EQ(draw(), R"(
abcd
  efgh
    ijkl
    mnop
  xyz
)");
  EXPECT_EQ(tree_.num_nodes(), 5);
  EXPECT_EQ(pool_.num_free(), 16 - 5);
  EXPECT_EQ(pool_.num_evictable(), 5);
}

TEST_F(PrefixTreeTest, MatchesToTheToken) {
  insert("abcdefghijkl");
  insert("abcdefghmnop");
  tree_.commit();
  EXPECT_EQ(matched("abcdefghijkl"), 12);
  EXPECT_EQ(matched("abcdefghijxx"), 10);
  EXPECT_EQ(matched("abcdefghmx"), 9);
  EXPECT_EQ(matched("abcx"), 3);
  EXPECT_EQ(matched("ab"), 2);
  EXPECT_EQ(matched("xabc"), 0);
}

TEST_F(PrefixTreeTest, PendingNodesAreSharedButNotCopiedFrom) {
  const auto held = insert("abcdefgh");
  EXPECT_EQ(draw(), R"(
abcd?
  efgh?
)");
  const auto node = tree_.find_full(tree_.root(), ids("abcd"));
  ASSERT_NE(node, kNoBlock);
  const auto partial = tree_.find_partial(node, ids("efxx"));
  EXPECT_EQ(partial.num_tokens, 0);
  EXPECT_EQ(partial.pending_tokens, 2);
  tree_.commit();
  EXPECT_EQ(tree_.find_partial(node, ids("efxx")).num_tokens, 2);
}

TEST_F(PrefixTreeTest, APendingNeighbourDoesNotHideAValidOne) {
  insert("abca");
  tree_.commit();
  const auto held = insert("abcz");
  const auto partial = tree_.find_partial(tree_.root(), ids("abcx"));
  EXPECT_EQ(partial.num_tokens, 3);
  EXPECT_EQ(partial.node, tree_.find_full(tree_.root(), ids("abca")));
}

TEST_F(PrefixTreeTest, RollbackTakesOutWhatTheStepAdded) {
  insert("abcdefgh");
  tree_.commit();
  {
    const auto held = insert("abcdefghijklmn");
    const auto other = insert("abcdxxxx");
    EXPECT_EQ(draw(), R"(
abcd
  efgh
    ijkl?
      mn?
  xxxx?
)");
    tree_.rollback();
  }
  EXPECT_EQ(draw(), R"(
abcd
  efgh
)");
  EXPECT_EQ(pool_.num_free(), 16 - 2);
}

// The second step is planned while the first is under way.
TEST_F(PrefixTreeTest, ANodeOfAStepUnderWayIsCopiedFromButNotCertain) {
  const auto first = insert("abcdefgh");
  tree_.advance();
  EXPECT_EQ(draw(), "\nabcd\n  efgh\n");
  const auto node = tree_.find_full(tree_.root(), ids("abcd"));
  EXPECT_FALSE(tree_.is_committed(node));
  EXPECT_EQ(tree_.find_partial(node, ids("efxx")).num_tokens, 2);
  const auto second = insert("abcdxxxx");
  EXPECT_EQ(draw(), "\nabcd\n  efgh\n  xxxx?\n");
  tree_.commit();
  EXPECT_TRUE(tree_.is_committed(node));
  EXPECT_TRUE(tree_.is_pending(tree_.find_full(node, ids("xxxx"))));
  tree_.rollback();
  EXPECT_EQ(draw(), "\nabcd\n  efgh\n");
}

TEST_F(PrefixTreeTest, TheStepPlannedBehindAnotherFailsWithIt) {
  insert("abcd");
  tree_.commit();
  {
    const auto first = insert("abcdefgh");
    tree_.advance();
    const auto second = insert("abcdefghijkl");
    tree_.rollback();
  }
  EXPECT_EQ(draw(), "\nabcd\n");
  EXPECT_EQ(pool_.num_free(), 16 - 1);
  insert("abcdwxyz");
  tree_.commit();
  EXPECT_EQ(draw(), "\nabcd\n  wxyz\n");
}

TEST_F(PrefixTreeTest, APartlyFilledBlockBecomesAFullOne) {
  BlockRef block = pool_.allocate();
  tree_.insert_partial(tree_.root(), ids("ab"), block, /*pending=*/true);
  tree_.commit();
  EXPECT_EQ(draw(), "\nab\n");
  EXPECT_EQ(tree_.insert_full(tree_.root(), ids("abcd"), block), block.id());
  tree_.commit();
  EXPECT_EQ(draw(), "\nabcd\n");
  EXPECT_EQ(pool_.ref_count(block.id()), 2);
}

TEST_F(PrefixTreeTest, ADuplicateIsNotTaken) {
  insert("abcd");
  BlockRef again = pool_.allocate();
  EXPECT_NE(tree_.insert_full(tree_.root(), ids("abcd"), again), again.id());
  tree_.insert_partial(tree_.root(), ids("abc"), again, /*pending=*/false);
  EXPECT_EQ(tree_.num_nodes(), 1);
  EXPECT_EQ(pool_.ref_count(again.id()), 1);
}

TEST_F(PrefixTreeTest, EvictsLeavesFirstAndTheLeastRecentlyUsed) {
  insert("aaaabbbb");
  tree_.commit();
  insert("aaaacccc");
  tree_.commit();
  insert("dddd");
  tree_.commit();
  tree_.touch(tree_.find_full(tree_.find_full(tree_.root(), ids("aaaa")), ids("bbbb")));
  ASSERT_TRUE(tree_.evict_one());
  EXPECT_EQ(draw(), "\naaaa\n  bbbb\ndddd\n");
  ASSERT_TRUE(tree_.evict_one());
  EXPECT_EQ(draw(), "\naaaa\n  bbbb\n");
  ASSERT_TRUE(tree_.evict_one());
  EXPECT_EQ(draw(), "\naaaa\n");
  ASSERT_TRUE(tree_.evict_one());
  EXPECT_FALSE(tree_.evict_one());
  EXPECT_EQ(pool_.num_free(), 16);
}

TEST_F(PrefixTreeTest, NeverEvictsWhatSomebodyHolds) {
  auto held = insert("aaaabbbb");
  tree_.commit();
  insert("cccc");
  tree_.commit();
  EXPECT_TRUE(tree_.evict_one());
  EXPECT_FALSE(tree_.evict_one());
  EXPECT_EQ(draw(), "\naaaa\n  bbbb\n");
  held.clear();
  EXPECT_TRUE(tree_.evict_one());
  EXPECT_EQ(draw(), "\naaaa\n");
}

TEST_F(PrefixTreeTest, MatchesLikeASetOfTextsAfterAnySequence) {
  std::mt19937 random(11);
  const auto text = [&](std::size_t longest) {
    std::string letters;
    for (std::size_t i = 1 + random() % longest; i > 0; --i) {
      letters.push_back(static_cast<char>('a' + random() % 2));
    }
    return letters;
  };
  std::vector<std::vector<BlockRef>> held;
  for (int turn = 0; turn < 5'000; ++turn) {
    while (pool_.num_free() < 4) {
      if (!tree_.evict_one()) held.pop_back();
    }
    held.push_back(insert(text(14)));
    random() % 4 == 0 ? tree_.rollback() : tree_.commit();
    if (random() % 2 == 0) held.clear();

    // Brute force: all root-to-node texts of the tree.
    std::vector<std::string> texts;
    std::vector<std::pair<PrefixTree::NodeId, std::string>> open{{tree_.root(), ""}};
    while (!open.empty()) {
      auto [node, prefix] = std::move(open.back());
      open.pop_back();
      for (const auto child : tree_.children(node)) {
        std::string longer = prefix;
        for (const TokenId token : tree_.tokens(child)) longer.push_back(static_cast<char>(token));
        texts.push_back(longer);
        open.emplace_back(child, longer);
      }
    }
    ASSERT_EQ(static_cast<std::int32_t>(texts.size()), tree_.num_nodes());
    const std::string wanted = text(14);
    std::size_t best = 0;
    for (const std::string& known : texts) {
      std::size_t common = 0;
      while (common < std::min(known.size(), wanted.size()) && known[common] == wanted[common]) {
        ++common;
      }
      best = std::max(best, common);
    }
    ASSERT_EQ(static_cast<std::size_t>(matched(wanted)), best) << draw() << wanted;
  }
}

}  // namespace
}  // namespace batchmill
