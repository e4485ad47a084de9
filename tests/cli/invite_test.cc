#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/invite/lifetimes.h"
#include "cli/invite/named_clients.h"

namespace macaw::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Lifetimes, AreSecondsOrHaveAUnit) {
  const std::pair<const char*, absl::Duration> times[] = {
      {"3600", absl::Hours(1)},     {"90s", absl::Seconds(90)}, {"30m", absl::Minutes(30)},
      {"30min", absl::Minutes(30)}, {"12h", absl::Hours(12)},   {"7d", absl::Hours(7 * 24)},
      {"1h30m", absl::Minutes(90)}, {"", absl::Minutes(5)}};
  for (const auto& [text, time] : times)
    EXPECT_EQ(*ParseLifetime("--open-for", text, absl::Minutes(5)), time) << text;
}

TEST(Lifetimes, ThatAreNoneAreRefused) {
  for (const char* text : {"soon", "0", "-5", "500ms", "d", "min", "3w", "999999999d", "1e30"}) {
    const auto time = ParseLifetime("--open-for", text, absl::ZeroDuration());
    EXPECT_TRUE(absl::IsInvalidArgument(time.status())) << text;
    EXPECT_THAT(time.status().message(), HasSubstr("--open-for"));
  }
}

TEST(NamedClients, TheStarStandsAlone) {
  EXPECT_THAT(*ClientsNamed("device", {"*"}, {}), ElementsAre("*"));
  EXPECT_THAT(*ClientsNamed("device", {"a"}, {"b,c"}), ElementsAre("a", "b,c"));
  EXPECT_THAT(ClientsNamed("device", {"*", "a"}, {}).status().message(),
              HasSubstr("* is every client"));
  EXPECT_FALSE(ClientsNamed("device", {"a"}, {"*"}).ok());
}

}  // namespace
}  // namespace macaw::cli
