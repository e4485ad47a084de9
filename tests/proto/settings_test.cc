// A plan between two releases.
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
  RunPlan run;
  run.rounds = 3;
  run.local.optimizer = "adam";
  return {.major = 1, .program = "server", .run = run};
}

TEST(Settings, ThatAreAtTheirDefaultsDoNotTravel) {
  const v1::HelloReply message = ToWire(Hello());
  std::vector<std::string> keys;
  for (const v1::Setting& setting : message.run().settings()) keys.push_back(setting.key());
  EXPECT_THAT(keys, testing::ElementsAre("run.rounds", "local.optimizer"));
  EXPECT_TRUE(FromWire(message).ok());
}

// As a server of a later release sends it.
TEST(Settings, ARunWithOneThatIsNotKnownHereIsRefusedByItsName) {
  v1::HelloReply message = ToWire(Hello());
  v1::Setting& later = *message.mutable_run()->add_settings();
  later.set_key("local.sharpness");
  later.mutable_value()->set_real(0.5);
  const absl::Status status = FromWire(message).status();
  EXPECT_EQ(ReasonOf(status), v1::Refusal::REASON_VERSION);
  EXPECT_THAT(std::string(status.message()), HasSubstr("does not know: local.sharpness"));
}

TEST(Settings, UnknownFieldsOutsideARunAreServed) {
  v1::HelloReply message = ToWire(Hello());
  message.GetReflection()->MutableUnknownFields(&message)->AddVarint(90, 5);
  EXPECT_TRUE(FromWire(message).ok());
}

}  // namespace
}  // namespace macaw::wire
