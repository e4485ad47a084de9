// Which word was probably meant.
#include "core/spelling.h"

#include <gtest/gtest.h>

namespace macaw {
namespace {

TEST(NearestWord, IsTheOneWithTheFewestEdits) {
  EXPECT_EQ(NearestWord("fedprxo", {"fedavg", "fedprox"}), "fedprox");
  EXPECT_EQ(NearestWord("test-loss", {"test_auc", "test_loss"}), "test_loss");
  EXPECT_EQ(NearestWord("nothing", {"fedavg", "fedprox"}), "");
}

TEST(NearestWord, BeginsWithTheGivenOneIfAnyDoes) {
  EXPECT_EQ(NearestWord("test_acc", {"test_auc", "test_accuracy"}), "test_accuracy");
  EXPECT_EQ(NearestWord("lenet", {"resnet", "lenet5"}), "lenet5");
  EXPECT_EQ(NearestWord("mu", {"nu", "multiplier"}), "nu");  // too short to say so much
}

}  // namespace
}  // namespace macaw
