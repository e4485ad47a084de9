#pragma once

#include <array>
#include <functional>
#include <memory>
#include <vector>

#include "algorithms/api/registry.h"
#include "tests/algorithms/quadratic_trainer.h"

namespace macaw::algorithms {

struct TestPopulationClient {
  Quadratic objective;
  uint32_t examples = 1;
};

// The four clients of the oracle Q4, with 1, 2, 3 and 4 examples.
std::vector<TestPopulationClient> Q4();

// A federation in one function call: every room's part of a round, without the rooms. Configure →
// Prepare → trainer → Conclude → exact sum → Apply, phase after phase, with client states that move
// in the last phase only.
class RoundLoop {
 public:
  struct Options {
    uint32_t steps =
        7;  // local steps; 0: `epochs` times the client's examples, so that clients differ
    uint32_t epochs = 1;  // with a learning rate of 0.1
    std::map<std::string, ParameterValue> parameters;
    DType dtype = DType::kF64;
    std::array<double, 2> start = {0, 0};
  };
  RoundLoop(const Description& description, std::vector<TestPopulationClient> population,
            const Options& options);

  // One round with these clients, in this order.
  absl::Status Round(const std::vector<size_t>& cohort);
  // Rounds with everybody.
  absl::Status Rounds(int count);

  std::array<double, 2> Model() const;
  Digest ModelDigest() const { return DigestOfValues(server_->Model()); }
  ServerAlgorithm& server() { return *server_; }
  // State item `item` of a client, as doubles; zero before its first turn.
  std::array<double, 2> State(size_t client, size_t item) const;
  // What the algorithm evaluates for a client.
  std::array<double, 2> Personal(size_t client);

 private:
  ClientContext Context(size_t client, std::span<const ConstVectorView> broadcast);

  std::vector<TestPopulationClient> population_;
  Setup setup_;
  Schema schema_;
  std::unique_ptr<ServerAlgorithm> server_;
  std::unique_ptr<ClientAlgorithm> client_;
  QuadraticTrainer trainer_;
  Workspace workspace_;
  std::vector<std::vector<FlatVector>> states_;  // by client; empty before the first turn
  std::vector<FlatVector> zero_state_;
  std::vector<ConstVectorView> state_views_;
  uint32_t round_ = 0;
};

// Largest absolute difference.
double Distance(const std::array<double, 2>& a, const std::array<double, 2>& b);

// Registers the description beside the built-ins, and says what went wrong.
Description Builtin(const std::string& name);

}  // namespace macaw::algorithms
