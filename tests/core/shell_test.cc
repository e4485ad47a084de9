#include "core/shell.h"

#include <gtest/gtest.h>

namespace macaw {
namespace {

TEST(ForShell, IsOneWordWhateverTheTextHolds) {
  EXPECT_EQ(ForShell("phone-7"), "phone-7");
  EXPECT_EQ(ForShell(""), "''");
  EXPECT_EQ(ForShell("a b, \"c\""), "'a b, \"c\"'");
  EXPECT_EQ(ForShell("o'h"), "'o'\\''h'");
  EXPECT_EQ(ForShell("*"), "'*'");
}

}  // namespace
}  // namespace macaw
