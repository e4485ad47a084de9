#include "proto/wire/settings.h"

#include <gmock/gmock.h>
#include <google/protobuf/unknown_field_set.h>
#include <gtest/gtest.h>

#include "macaw/v1/fleet.pb.h"
#include "proto/wire/convert.h"
#include "proto/wire/refusal.h"

namespace macaw::wire {
namespace {

using testing::HasSubstr;

fleet::HelloReply Hello() {
  RunConfig run;
  run.rounds = 3;
  run.local.optimizer = "adam";
  return {.major = 1, .program = "server", .run = run};
}

TEST(Settings, AreTheFieldsThatAreNotAtTheirDefaults) {
  const v1::HelloReply message = ToWire(Hello());
  const std::vector<std::string> settings(message.settings().begin(), message.settings().end());
  EXPECT_THAT(settings, testing::IsSupersetOf({"rounds", "local.optimizer"}));
  EXPECT_THAT(settings, testing::Not(testing::Contains("local.nesterov")));
  EXPECT_TRUE(FromWire(message).ok());
}

// As a server of a later release sends it: a field with a number that is not known here, and its
// name.
TEST(Settings, ARunWithOneThatIsNotKnownHereIsRefusedByItsName) {
  v1::HelloReply message = ToWire(Hello());
  v1::LocalConfig& local = *message.mutable_run()->mutable_local();
  local.GetReflection()->MutableUnknownFields(&local)->AddVarint(90, 5);
  message.add_settings("local.sharpness");
  const absl::Status status = FromWire(message).status();
  EXPECT_EQ(ReasonOf(status), v1::Refusal::REASON_VERSION);
  EXPECT_THAT(std::string(status.message()), HasSubstr("does not know: local.sharpness"));
}

// One that says nothing of names: still not ignored in silence.
TEST(Settings, UnknownFieldsOfARunAreRefusedWithoutTheirNamesToo) {
  v1::RunConfig run = ToWire(*Hello().run);
  EXPECT_TRUE(FromWire(run).ok());
  v1::LocalConfig& local = *run.mutable_local();
  local.GetReflection()->MutableUnknownFields(&local)->AddVarint(90, 5);
  EXPECT_THAT(std::string(FromWire(run).status().message()), HasSubstr("does not know"));
}

TEST(Settings, UnknownFieldsOutsideARunAreServed) {
  v1::HelloReply message = ToWire(Hello());
  message.GetReflection()->MutableUnknownFields(&message)->AddVarint(90, 5);
  EXPECT_TRUE(FromWire(message).ok());
}

}  // namespace
}  // namespace macaw::wire
