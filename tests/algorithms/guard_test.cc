#include "algorithms/around/guard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

namespace macaw::algorithms {
namespace {

using testing::HasSubstr;

class ThrowingClient final : public ClientAlgorithm {
 public:
  explicit ThrowingClient(const Setup&) {}
  absl::StatusOr<training::LocalPlan> Prepare(const ClientContext&, Workspace&) const override {
    throw std::runtime_error("no plan today");
  }
  absl::StatusOr<ClientResult> Conclude(const ClientContext&,
                                        std::span<const training::StageOutcome>,
                                        Workspace&) const override {
    throw 7;
  }
};

// Throws from every function that may throw, unless `calm`.
class ThrowingServer final : public ServerAlgorithm {
 public:
  ThrowingServer(const Setup&, FlatVector model) : model_(std::move(model)) {}
  absl::StatusOr<Broadcast> Configure(const ServerContext&) const override {
    throw std::runtime_error("nothing to send");
  }
  absl::StatusOr<AfterApply> Apply(const ServerContext&, aggregation::Aggregate) override {
    return AfterApply::kRoundDone;
  }
  ConstVectorView Model() const override { return model_.view(); }
  ServerState Save() const override { throw std::runtime_error("nothing to save"); }
  absl::Status Load(const ServerState&) override { throw std::runtime_error("cannot load"); }

 private:
  FlatVector model_;
};

Description Throwing() {
  return {.name = "throwing",
          .plugin = "heron",
          .schema = [](const Setup&) -> absl::StatusOr<Schema> {
            throw std::runtime_error("no schema");
          },
          .server = MakeServer<ThrowingServer>,
          .client = MakeClient<ThrowingClient>};
}

TEST(Guard, TurnsWhatAClientThrowsIntoAnErrorThatNamesThePlugin) {
  const Description guarded = Guard(Throwing());
  const auto setup = std::make_unique<algorithms::Setup>();
  EXPECT_THAT(std::string(guarded.schema(*setup).status().message()),
              HasSubstr("plug-in \"heron\", algorithm throwing: no schema"));
  const auto client = *guarded.client(*setup);
  Workspace workspace;
  // On the heap, because GCC 12 gives a false warning otherwise.
  const auto context = std::make_unique<ClientContext>();
  EXPECT_THAT(std::string(client->Prepare(*context, workspace).status().message()),
              HasSubstr("plug-in \"heron\", algorithm throwing: no plan today"));
  EXPECT_THAT(std::string(client->Conclude(*context, {}, workspace).status().message()),
              HasSubstr("no std::exception"));
}

TEST(Guard, EndsTheRoundWithWhatAServerThrew) {
  const auto server =
      *Guard(Throwing()).server({}, FlatVector(ParameterLayout::Scalars("w", 3, DType::kF32)));
  EXPECT_THAT(std::string(server->Configure({}).status().message()),
              HasSubstr("plug-in \"heron\", algorithm throwing: nothing to send"));
  EXPECT_TRUE(server->Apply({}, {}).ok());
  EXPECT_TRUE(server->Save().vectors.empty());
  EXPECT_THAT(std::string(server->Apply({}, {}).status().message()), HasSubstr("nothing to save"));
  EXPECT_THAT(std::string(server->Load({}).message()), HasSubstr("cannot load"));
}

TEST(Guard, AMissingServerOrClientHalfIsAnError) {
  Description empty = Throwing();
  empty.client = [](const auto&) -> absl::StatusOr<std::unique_ptr<ClientAlgorithm>> {
    return nullptr;
  };
  EXPECT_THAT(std::string(Guard(empty).client({}).status().message()), HasSubstr("no client half"));
}

}  // namespace
}  // namespace macaw::algorithms
