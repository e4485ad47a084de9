#include "cli/config/suggest.h"

#include <gtest/gtest.h>

#include <set>

#include "cli/config/config.h"

namespace macaw::cli {
namespace {

std::vector<std::string> Keys() {
  std::vector<std::string> keys;
  for (const Field& field : AllFields()) keys.push_back(field.key);
  return keys;
}

TEST(EditDistance, CountsEditsAndSwaps) {
  EXPECT_EQ(EditDistance("", "abc"), 3u);
  EXPECT_EQ(EditDistance("rounds", "rounds"), 0u);
  EXPECT_EQ(EditDistance("ruonds", "rounds"), 1u);  // two neighbours swapped
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3u);
  EXPECT_EQ(EditDistance("sitting", "kitten"), 3u);
}

TEST(NearestWord, StaysSilentWhenNothingIsNear) {
  EXPECT_EQ(NearestWord("fedporx", {"fedavg", "fedprox"}), "fedprox");
  EXPECT_EQ(NearestWord("transformer", {"fedavg", "fedprox"}), "");
}

TEST(NearestKey, PrefersASlipWithinTheTableToAnythingElse) {
  EXPECT_EQ(NearestKey("evaluation.chunks", Keys()), "evaluation.chunk");
  EXPECT_EQ(NearestKey("workers.slot", Keys()), "workers.slots");
}

TEST(NearestKey, ReadsOtherSpellings) {
  EXPECT_EQ(NearestKey("local.LEARNING-RATE", Keys()), "local.lr");
  EXPECT_EQ(NearestKey("fraction_fit", Keys()), "cohort.fraction");
}

TEST(NearestKey, StaysSilentWhenNothingIsNear) {
  EXPECT_EQ(NearestKey("run.zzzzzzzzzz", Keys()), "");
}

TEST(NearestKey, NamesOnlyKeysAndTablesThatExist) {
  std::set<std::string> known;
  for (const std::string& key : Keys()) {
    known.insert(key);
    for (size_t dot = key.find('.'); dot != std::string::npos; dot = key.find('.', dot + 1)) {
      known.insert(key.substr(0, dot));
    }
  }
  for (const char* theirs :
       {"comm_round", "client_num_per_round", "fraction_fit", "learning_rate", "partition_alpha",
        "num_clients", "batch", "dataset", "normalize", "early_stopping", "port", "test_every",
        "num_workers", "federated_optimizer", "wd", "lr_decay", "num_classes", "pretrained"}) {
    EXPECT_TRUE(known.contains(NearestKey(theirs, Keys())))
        << theirs << " -> " << NearestKey(theirs, Keys());
  }
}

}  // namespace
}  // namespace macaw::cli
