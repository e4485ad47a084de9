#include "sdk/guard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

namespace macaw::sdk {
namespace {

using algorithms::ClientContext;
using algorithms::Description;
using algorithms::Setup;
using testing::HasSubstr;

class ThrowingClient final : public algorithms::ClientAlgorithm {
 public:
  explicit ThrowingClient(const Setup&) {}
  absl::StatusOr<training::LocalPlan> Prepare(const ClientContext&,
                                              algorithms::Workspace&) const override {
    throw std::runtime_error("no plan today");
  }
  absl::StatusOr<algorithms::ClientResult> Conclude(const ClientContext&,
                                                    std::span<const training::StageOutcome>,
                                                    algorithms::Workspace&) const override {
    throw 7;
  }
};

// Throws from every function that may throw, unless `calm`.
class ThrowingServer final : public algorithms::ServerAlgorithm {
 public:
  ThrowingServer(const Setup&, FlatVector model) : model_(std::move(model)) {}
  std::vector<ConstVectorView> Configure(Round, Phase) const override {
    throw std::runtime_error("nothing to send");
  }
  absl::StatusOr<algorithms::AfterApply> Apply(Round, Phase, aggregation::Aggregate) override {
    return algorithms::AfterApply::kRoundDone;
  }
  ConstVectorView Model() const override { return model_.view(); }
  algorithms::ServerState Save() const override { return {}; }
  absl::Status Load(const algorithms::ServerState&) override {
    throw std::runtime_error("cannot load");
  }

 private:
  FlatVector model_;
};

Description Throwing() {
  return {.name = "throwing",
          .schema = [](const Setup&) -> absl::StatusOr<algorithms::Schema> {
            throw std::runtime_error("no schema");
          },
          .server = algorithms::MakeServer<ThrowingServer>,
          .client = algorithms::MakeClient<ThrowingClient>};
}

TEST(Guard, TurnsWhatAClientThrowsIntoAnErrorThatNamesThePlugin) {
  const Description guarded = Guard(Throwing(), "moon");
  EXPECT_THAT(std::string(guarded.schema({}).status().message()),
              HasSubstr("plug-in \"moon\": no schema"));
  const auto client = *guarded.client({});
  algorithms::Workspace workspace;
  // On the heap, because GCC 12 gives a false warning otherwise.
  const auto context = std::make_unique<ClientContext>();
  EXPECT_THAT(std::string(client->Prepare(*context, workspace).status().message()),
              HasSubstr("plug-in \"moon\": no plan today"));
  EXPECT_THAT(std::string(client->Conclude(*context, {}, workspace).status().message()),
              HasSubstr("no std::exception"));
}

TEST(Guard, EndsTheRoundWithWhatAServerThrew) {
  const auto server = *Guard(Throwing(), "moon")
                           .server({}, FlatVector(ParameterLayout::Scalars("w", 3, DType::kF32)));
  EXPECT_TRUE(server->Configure(Round(1), Phase(0)).empty());
  EXPECT_THAT(std::string(server->Apply(Round(1), Phase(0), {}).status().message()),
              HasSubstr("plug-in \"moon\": nothing to send"));
  EXPECT_THAT(std::string(server->Load({}).message()), HasSubstr("cannot load"));
}

TEST(Guard, AMissingServerOrClientHalfIsAnError) {
  Description empty = Throwing();
  empty.client = [](const auto&) -> absl::StatusOr<std::unique_ptr<algorithms::ClientAlgorithm>> {
    return nullptr;
  };
  EXPECT_THAT(std::string(Guard(empty, "moon").client({}).status().message()),
              HasSubstr("no client half"));
}

}  // namespace
}  // namespace macaw::sdk
