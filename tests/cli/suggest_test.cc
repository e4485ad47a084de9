#include "cli/config/suggest.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>

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

// The names of docs/coming-from.md, in tables where users of other frameworks may type them.
TEST(NearestKey, KnowsTheNamesOfOtherFrameworks) {
  for (const char* table : {"partition.", "run.", "data."})
    EXPECT_EQ(NearestKey(std::string(table) + "alpha", Keys()), "partition.concentration") << table;
  const std::pair<const char*, const char*> names[] = {
      {"train_cohort_size", "cohort.size"},
      {"num-server-rounds", "run.rounds"},
      {"min_available_clients", "server.workers"},
      {"proximal_mu", "algorithm.fedprox.mu"},
      {"num_partitions", "partition.clients"},
      {"local_max_grad_norm", "local.clip_norm"},
      {"drop_remainder", "local.drop_last"},
      {"enable_wandb", "run.track"},
      {"checkpoint_frequency", "run.checkpoint_every"},
      {"eval_frequency", "evaluation.every"}};
  for (const auto& [theirs, ours] : names)
    EXPECT_EQ(NearestKey(std::string("run.") + theirs, Keys()), ours) << theirs;
}

TEST(NearestKey, PrefersASlipInTheTableToTheNamesOfOtherFrameworks) {
  EXPECT_EQ(NearestKey("data.syntetic.alpha", Keys()), "data.synthetic.alpha");
  EXPECT_EQ(NearestKey("privcy.noise", Keys()), "privacy.noise");
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
