#include "testing/local_link.h"

#include <gtest/gtest.h>

#include "tests/proto/link_contract.h"

namespace macaw::fleet {
namespace {

class LocalFixture : public LinkFixture {
 public:
  LocalFixture() { link_ = MakeLocalLink(*handler_); }
};

INSTANTIATE_TYPED_TEST_SUITE_P(Local, LinkContract, LocalFixture);

TEST(LocalLink, CopiesNoBlob) {
  FakeHandler handler;
  const auto link = MakeLocalLink(handler);
  const Blob sums = RandomBlob(1000, 1);
  ASSERT_TRUE(link->Commit(PartWith(sums)).ok());
  EXPECT_EQ(handler.TakeCommitted().at(0).part->sums.bytes, sums.bytes);
}

TEST(LocalLink, AnAnswerMayOutliveTheLink) {
  FakeHandler handler;
  handler.ParkPolls();
  auto link = MakeLocalLink(handler);
  std::thread caller([&] { EXPECT_FALSE(link->Lease({.wait = FromSeconds(50)}).ok()); });
  handler.AwaitParked(1);
  link->Shutdown();
  caller.join();
  link.reset();
  for (auto& parked : handler.TakeParked()) std::move(parked)(LeaseReply{});
}

}  // namespace
}  // namespace macaw::fleet
