#include "server/left_out_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace macaw::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TimePoint Second(int seconds) { return TimePoint(std::chrono::seconds(seconds)); }

fleet::LeftOut Of(uint64_t client) {
  return {.attempt = {.client = ClientId(client)}, .message = "its disk\nis gone"};
}

// Anna has clients 0 and 2, and Bert client 1.
class LeftOutLinesTest : public testing::Test {
 protected:
  LeftOutLinesTest() {
    anna_.name = "anna";
    anna_.holding =
        roster_.Add({.name = "anna", .data_digest = DigestOf("a"), .clients = 2, .owner = true},
                    {.rows = {5, 5}, .names = {"0", "2"}});
    roster_.Add({.name = "bert", .data_digest = DigestOf("b"), .clients = 1, .owner = true},
                {.rows = {5}, .names = {"1"}});
  }
  Roster roster_;
  Node anna_;
  LeftOutLines lines_;
};

TEST_F(LeftOutLinesTest, AreOfTheNodesOwnClients) {
  EXPECT_THAT(lines_.Of({Of(0)}, anna_, roster_, Second(1)), IsEmpty()) << "no run has begun";
  roster_.Begin();
  EXPECT_THAT(lines_.Of({Of(1), Of(3), Of(uint64_t{1} << 40), Of(2)}, anna_, roster_, Second(1)),
              ElementsAre(testing::AllOf(HasSubstr("client=2 worker=anna"),
                                         HasSubstr("its disk is gone"))));
}

TEST_F(LeftOutLinesTest, AreFewHoweverOftenANodeSaysIt) {
  roster_.Begin();
  const std::vector<fleet::LeftOut> many(50, Of(0));
  EXPECT_EQ(lines_.Of(many, anna_, roster_, Second(0)).size(), 4u);
  size_t written = 4;
  for (int i = 0; i < 100; ++i) written += lines_.Of(many, anna_, roster_, Second(0)).size();
  EXPECT_EQ(written, 100u);
  EXPECT_EQ(lines_.Of(many, anna_, roster_, Second(1)).size(), 1u);
  EXPECT_EQ(lines_.Of(many, anna_, roster_, Second(200)).size(), 4u);
}

}  // namespace
}  // namespace macaw::server
