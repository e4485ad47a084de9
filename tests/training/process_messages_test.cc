#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "training/api/metrics.h"
#include "training/process/messages.h"

namespace macaw::training::process {
namespace {

using testing::Each;

constexpr TaskKind kTask = TaskKind::kClassification;

// An evaluation's answer whose loss is null and which counts so many examples, none of them right.
std::string WithoutLoss(int examples) {
  std::string sums;
  for (const std::string& name : SchemaFor(kTask).sums) {
    const std::string said = name == "loss"       ? "null"
                             : name == "examples" ? absl::StrCat(examples)
                                                  : "0";
    absl::StrAppend(&sums, sums.empty() ? "" : ", ", "\"", name, "\": ", said);
  }
  return absl::StrCat("{\"id\": 8, \"sums\": {", sums, "}}");
}

TEST(ProcessMessages, AnEvaluationOfNoRowsMaySayNull) {
  const auto none = ParseEvaluated(WithoutLoss(0), 8, kTask);
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_THAT(none->sums, Each(0));
}

TEST(ProcessMessages, AnEvaluationOfRowsMayHaveNoLoss) {
  const auto some = ParseEvaluated(WithoutLoss(3), 8, kTask);
  ASSERT_TRUE(some.ok()) << some.status();
  EXPECT_TRUE(std::isnan(some->sums[1]));
}

}  // namespace
}  // namespace macaw::training::process
